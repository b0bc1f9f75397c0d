package execclient

import (
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// Limits on a program's events.
const (
	// maxStatus limits the length of a program's status.
	maxStatus = 1 << 10
	// keepaliveBurst is the number of keepalives that may come early. An agent sends at most one a
	// second.
	keepaliveBurst = 60
)

var errAfterEnd = agentproto.Violationf("an event after the end of the program")

// Order checks the events of one program: one start, then output and keepalives, then one end and
// no more events. The zero value expects the start.
type Order struct {
	began      time.Time // when the start came
	keepalives int
	ended      bool
}

// Check returns an *agentproto.Violation if ev is not allowed at this point.
func (o *Order) Check(ev *process.ProcessEvent, now time.Time) error {
	if o.ended {
		return errAfterEnd
	}
	switch of := ev.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		return o.start(now)
	case *process.ProcessEvent_Data:
		return o.begun("output")
	case *process.ProcessEvent_Keepalive:
		return o.keepalive(now)
	case *process.ProcessEvent_End:
		return o.end(of.End)
	}
	return agentproto.Violationf("an event of no kind")
}

func (o *Order) start(now time.Time) error {
	if !o.began.IsZero() {
		return agentproto.Violationf("a program started twice")
	}
	o.began = now
	return nil
}

func (o *Order) begun(what string) error {
	if o.began.IsZero() {
		return agentproto.Violationf("%s before the start of the program", what)
	}
	return nil
}

func (o *Order) keepalive(now time.Time) error {
	if err := o.begun("a keepalive"); err != nil {
		return err
	}
	o.keepalives++
	if o.keepalives > keepaliveBurst+int(now.Sub(o.began)/time.Second) {
		return agentproto.Violationf("more than one keepalive a second")
	}
	return nil
}

func (o *Order) end(e *process.ProcessEvent_EndEvent) error {
	if err := o.begun("an end"); err != nil {
		return err
	}
	if n := max(len(e.GetStatus()), len(e.GetError())); n > maxStatus {
		return agentproto.Violationf("a program's status of %d bytes, want at most %d", n, maxStatus)
	}
	o.ended = true
	return nil
}
