package client

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/pace"
	"github.com/forkd/forkd/internal/vmctl/wire"
)

// A guest dials as often as it likes. Its VMM lets wire.MaxDials of them wait and
// refuses the rest by itself; the daemon answers them apart from the reader, no
// faster than answerRate, so that no guest costs it more than that.

const (
	// answerRate is how many a daemon answers in a second, after answerBurst at once.
	answerRate  = 200
	answerBurst = wire.MaxDials
)

// dialEvent is a dial that waits for its answer.
type dialEvent struct {
	id   uint64
	port uint32
}

// queueDial never waits. A VMM that asks more than wire.MaxDials at once is none of ours.
func (p *Process) queueDial(m wire.Message) error {
	var d wire.Dial
	if err := json.Unmarshal(m.Body, &d); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.dials) >= wire.MaxDials {
		return fmt.Errorf("%w: more than %d dials wait", errBroken, wire.MaxDials)
	}
	p.dials = append(p.dials, dialEvent{m.ID, d.Port})
	if !p.dialing {
		p.dialing = true
		go p.answerDials() // until there are none
	}
	return nil
}

func (p *Process) answerDials() {
	for {
		d, more := p.nextDial()
		if !more {
			return
		}
		p.await(p.dialPace.Take(time.Now()))
		p.answerDial(d)
	}
}

// nextDial takes a dial off the queue before it is answered: the VMM may then send another.
func (p *Process) nextDial() (d dialEvent, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.dials) == 0 || p.gone {
		p.dials, p.dialing = nil, false
		return d, false
	}
	d, p.dials = p.dials[0], p.dials[1:]
	return d, true
}

// await returns early when the control socket is closed.
func (p *Process) await(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.hungUp:
	}
}

func (p *Process) answerDial(d dialEvent) {
	answer := wire.Message{ID: d.id, Op: wire.OpDialed}
	var files []*os.File
	if p.dial != nil {
		f, err := p.dial(d.port)
		if err != nil {
			answer.Error = wire.EncodeError(err)
		} else {
			defer f.Close()
			files = []*os.File{f}
		}
	}
	if err := p.conn.Send(context.Background(), answer, files...); err != nil {
		p.sendError(context.Background(), err)
	}
}

func newDialPace() *pace.Bucket { return pace.New(answerRate, answerBurst) }
