package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Messages from a VMM are not trusted: its guest may have taken it over. A VMM gets bounded memory
// here, the reader never waits for other goroutines, and a VMM is killed for breaking the protocol,
// with the reason.

// lonelyLimit is how long a VMM may live after it has closed its control socket. Its VM is
// unreachable then. A normal exit follows immediately.
const lonelyLimit = 10 * time.Second

// unaskedRate is the number of disk health reports accepted from a VMM per second, after
// unaskedBurst without a delay. With a disk filling up again and again, a VMM sends about 20 a
// second.
const (
	unaskedRate  = 100
	unaskedBurst = 32
)

// errBroken is returned for a message no correct VMM sends.
var errBroken = errors.New("the VMM process broke the control protocol")

// readLoop delivers answers and events until the socket closes.
func (p *Process) readLoop(ready chan<- error) {
	defer close(p.drained)
	err := p.read(ready)
	p.conn.Close()
	p.mu.Lock()
	p.gone = true
	for id, ch := range p.pending {
		close(ch)
		delete(p.pending, id)
	}
	released := p.released
	p.mu.Unlock()
	p.dials.end()
	close(p.hungUp)
	switch {
	case released:
	case errors.Is(err, errBroken), errors.Is(err, wire.ErrMessage):
		p.condemn(err)
	default: // it is ending, or will be ended
		go p.endLonely()
	}
	if ready != nil {
		select {
		case ready <- vmm.ErrGone:
		default: // it was ready already
		}
	}
}

// read runs until an error: io.EOF, or the reason why the connection is unusable.
func (p *Process) read(ready chan<- error) error {
	buf := make([]byte, wire.MaxAnswer)
	spare := ready
	for {
		m, _, err := p.conn.Receive(buf, 0)
		if err != nil {
			return err
		}
		if m.Event == wire.EventHealth {
			slowDown(p.unasked.Take(time.Now()), p.draining) // a VMM keeps only the newest report while its socket is full
		}
		if err = take(p, m, &spare); err != nil {
			return err
		}
	}
}

// take handles one message. spare is nil once the process has been ready.
func take(p *Process, m wire.Message, spare *chan<- error) (err error) {
	switch m.Event {
	case "":
		return p.deliver(m)
	case wire.EventReady:
		if *spare == nil {
			return fmt.Errorf("%w: it was ready already", errBroken)
		}
		if err = noteReady(p, m); err == nil {
			*spare <- nil
			*spare = nil
		}
		return err
	case wire.EventExit:
		return p.heardExit(m)
	case wire.EventHealth:
		return p.health.heard(m)
	case wire.EventDial:
		return p.dials.add(m)
	}
	return fmt.Errorf("%w: event %q", errBroken, wire.ClipText(wire.Printable(m.Event)))
}

// slowDown delays the reader, so that the VMM waits before its next message. It returns early when
// ended is closed.
func slowDown(d time.Duration, ended <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ended:
	}
}

// deliver passes an answer to the waiting call.
func (p *Process) deliver(m wire.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch := p.pending[m.ID]
	if ch == nil {
		if p.late--; p.late < 0 {
			p.late = 0
			return fmt.Errorf("%w: an answer without a request", errBroken)
		}
		return nil
	}
	delete(p.pending, m.ID)
	ch <- m // the channel has room for one
	return nil
}

// noteReady records the process's report about itself from before it had a guest.
func noteReady(p *Process, m wire.Message) error {
	var r wire.Ready
	if len(m.Body) > 0 {
		if err := json.Unmarshal(m.Body, &r); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	r.Why = wire.Printable(r.Why)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confinement = r.Confinement
	return nil
}

func (p *Process) heardExit(m wire.Message) error {
	var e vmm.Exit
	if err := json.Unmarshal(m.Body, &e); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	e.Kind, e.Reason = vmm.ExitKind(wire.ClipText(wire.Printable(string(e.Kind)))), wire.ClipText(wire.Printable(e.Reason))
	if !p.setExit(e) {
		return fmt.Errorf("%w: its VM has ended already", errBroken)
	}
	return nil
}

// setExit keeps the first exit: the VMM's own report takes precedence over the kernel's.
func (p *Process) setExit(e vmm.Exit) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil {
		return false
	}
	p.exit = &e
	return true
}

// condemn kills an unusable process and records the reason.
func (p *Process) condemn(why error) {
	p.setExit(vmm.Exit{Kind: vmm.ExitKilled, Reason: "ended by the daemon: " + why.Error()})
	p.Kill()
}

// endLonely kills a process if it does not exit after closing its control socket.
func (p *Process) endLonely() {
	p.mu.Lock()
	timer := time.NewTimer(p.lonely)
	p.mu.Unlock()
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.condemn(errors.New("the VMM process closed its control socket and did not end"))
	}
}
