package netclient

import (
	"context"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/netwire"
	"github.com/forkd/forkd/internal/usernet"
)

// wire is one wire, from its descriptor to its end.
type wire struct {
	conn *netwire.Conn

	mu    sync.Mutex             // guards what follows
	calls map[uint32]chan answer // nil once the wire has ended; each takes one answer
	last  uint32                 // id
}

// answer is to one Open.
type answer struct {
	file   *os.File // nil: refused
	reason usernet.Reason
}

// open asks for a flow and waits for the answer.
func (w *wire) open(ctx context.Context, f netwire.Flow) (*os.File, error) {
	id, call, reason := w.begin()
	if call == nil {
		return nil, &usernet.Refusal{Reason: reason}
	}
	if err := w.conn.Send(netwire.Message{Kind: netwire.Open, ID: id, Flow: f}); err != nil {
		w.forget(id, call)
		return nil, &usernet.Refusal{Reason: usernet.Prohibited}
	}
	select {
	case a := <-call:
		if a.file == nil {
			return nil, &usernet.Refusal{Reason: a.reason}
		}
		return a.file, nil
	case <-ctx.Done():
		if w.forget(id, call) {
			w.conn.Send(netwire.Message{Kind: netwire.Cancel, ID: id})
		}
		return nil, ctx.Err()
	}
}

// begin makes a place for an answer, or says how the flow is refused.
func (w *wire) begin() (id uint32, call chan answer, refused usernet.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.calls == nil:
		return 0, nil, usernet.Prohibited
	case len(w.calls) >= openMax:
		return 0, nil, usernet.Reset
	}
	for w.last++; w.calls[w.last] != nil; w.last++ {
	}
	call = make(chan answer, 1)
	w.calls[w.last] = call
	return w.last, call, 0
}

// forget gives an answer up, and reports whether it was still to come. One that
// is there already is closed.
func (w *wire) forget(id uint32, call chan answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.calls[id] == call
	if waiting {
		delete(w.calls, id)
	}
	select {
	case a := <-call:
		if a.file != nil {
			a.file.Close()
		}
	default:
	}
	return waiting
}

// receive hands out answers until the wire ends; what is not answered by then is
// refused.
func (w *wire) receive() {
	for {
		m, file, err := w.conn.Receive(true)
		if err != nil {
			break
		}
		if m.Kind != netwire.Opened && m.Kind != netwire.Refused {
			break
		}
		w.answer(m.ID, answer{file, usernet.Reason(m.Reason)})
	}
	w.conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.calls {
		call <- answer{reason: usernet.Prohibited}
	}
	w.calls = nil
}

// answer gives an answer to who waits for it. After a Cancel that is nobody.
func (w *wire) answer(id uint32, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call := w.calls[id]; call != nil {
		delete(w.calls, id)
		call <- a // takes one without waiting
		return
	}
	if a.file != nil {
		a.file.Close()
	}
}
