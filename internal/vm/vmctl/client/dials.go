package client

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// A guest dials as often as it likes. Its VMM lets wire.MaxDials dials wait and refuses the rest by
// itself. The daemon answers dials in a separate goroutine, not in the reader, and no faster than
// answerRate. This limits a guest's cost to the daemon.

const (
	// answerRate is the number of dials a daemon answers per second, after answerBurst without
	// delay.
	answerRate  = 200
	answerBurst = wire.MaxDials
)

// dialEvent is an unanswered dial.
type dialEvent struct {
	id   uint64
	port uint32
}

// dialQueue holds and answers the dials of one guest.
type dialQueue struct {
	dial   HostDialer
	pace   *pace.Bucket // limits the rate of answers
	hungUp <-chan struct{}
	send   func(answer wire.Message, files []*os.File)

	mu        sync.Mutex  // guards the fields below; no other lock is taken under it
	waiting   []dialEvent // dials without an answer
	answering bool        // answerAll is running
	over      bool        // the control socket is closed
}

// add queues a dial without waiting. More than wire.MaxDials waiting dials break the protocol.
func (q *dialQueue) add(m wire.Message) error {
	var d wire.Dial
	if err := json.Unmarshal(m.Body, &d); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= wire.MaxDials {
		return fmt.Errorf("%w: more than %d dials wait", errBroken, wire.MaxDials)
	}
	q.waiting = append(q.waiting, dialEvent{m.ID, d.Port})
	if !q.answering {
		q.answering = true
		go q.answerAll() // until the queue is empty
	}
	return nil
}

// end drops the waiting dials, because the connection for the answers is closed.
func (q *dialQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.over = nil, true
}

func (q *dialQueue) answerAll() {
	for {
		d, more := q.next()
		if !more {
			return
		}
		q.await(q.pace.Take(time.Now()))
		q.answer(d)
	}
}

// next removes a dial from the queue before it is answered, because the VMM may then send another.
func (q *dialQueue) next() (d dialEvent, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || q.over {
		q.waiting, q.answering = nil, false
		return d, false
	}
	d, q.waiting = q.waiting[0], q.waiting[1:]
	return d, true
}

// await waits for d, or until the control socket is closed.
func (q *dialQueue) await(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-q.hungUp:
	}
}

func (q *dialQueue) answer(d dialEvent) {
	answer := wire.Message{ID: d.id, Op: wire.OpDialed}
	var files []*os.File
	if q.dial != nil {
		f, err := q.dial(d.port)
		if err != nil {
			answer.Error = wire.EncodeError(err)
		} else {
			defer f.Close()
			files = []*os.File{f}
		}
	}
	q.send(answer, files)
}

// sendDialed sends the answer to a dial.
func (p *Process) sendDialed(answer wire.Message, files []*os.File) {
	if err := p.conn.Send(context.Background(), answer, files...); err != nil {
		p.sendError(context.Background(), err)
	}
}

func newDialPace() *pace.Bucket { return pace.New(answerRate, answerBurst) }
