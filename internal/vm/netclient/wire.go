package netclient

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/vm/usernet"
)

// wire is one wire, from its descriptor to its end.
type wire struct {
	conn *netwire.Conn
	link func(*os.File) // may be nil

	mu    sync.Mutex             // guards the fields below
	calls map[uint32]chan answer // nil once the wire has ended; each takes one answer
	ends  map[uint32]*ending     // of established streams
	last  uint32                 // id
}

// ending is the past or future end of a stream relayed by forkd-net.
type ending struct {
	known    chan struct{} // closed when finished is valid
	finished bool          // with the far end's last byte; otherwise it was cut off
}

// end records how a stream ended. w.mu is held.
func (w *wire) end(id uint32, finished bool) {
	if e := w.ends[id]; e != nil {
		delete(w.ends, id)
		e.finished = finished
		close(e.known)
	}
}

// forgetEnd is called for a closed stream.
func (w *wire) forgetEnd(id uint32, e *ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends[id] == e {
		w.end(id, false)
	}
}

// answer is the answer to one Open.
type answer struct {
	file   *os.File // nil if refused
	end    *ending  // of the file, if there is one
	id     uint32
	reason usernet.Reason
}

// open requests a flow and waits for the answer.
func (w *wire) open(ctx context.Context, f netwire.Flow) (a answer, err error) {
	id, call, reason := w.begin()
	if call == nil {
		return a, &usernet.Refusal{Reason: reason}
	}
	if err := w.conn.Send(netwire.Message{Kind: netwire.Open, ID: id, Flow: f}); err != nil {
		w.forget(id, call)
		return a, &usernet.Refusal{Reason: usernet.Prohibited}
	}
	select {
	case a = <-call:
		if a.file == nil {
			return a, &usernet.Refusal{Reason: a.reason}
		}
		return a, nil
	case <-ctx.Done():
		if w.forget(id, call) {
			w.conn.Send(netwire.Message{Kind: netwire.Cancel, ID: id})
		}
		return a, ctx.Err()
	}
}

// begin registers a request, or returns the reason to refuse the flow.
func (w *wire) begin() (id uint32, call chan answer, refused usernet.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.calls == nil:
		return 0, nil, usernet.Prohibited
	case len(w.calls) >= openMax:
		return 0, nil, usernet.Reset
	}
	for w.last++; w.calls[w.last] != nil || w.ends[w.last] != nil; w.last++ {
	}
	call = make(chan answer, 1)
	w.calls[w.last] = call
	return w.last, call, 0
}

// forget abandons a request, and reports whether the answer was still to come. If the answer is
// already there, it is closed.
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
			w.end(id, false)
		}
	default:
	}
	return waiting
}

// receive delivers answers until the wire ends. Requests without an answer are then refused.
func (w *wire) receive() {
	for {
		m, file, err := w.conn.Receive(true)
		if err != nil {
			break
		}
		if !w.take(m, file) {
			break
		}
	}
	w.conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.calls {
		call <- answer{reason: usernet.Prohibited}
	}
	w.calls = nil
	for id := range w.ends { // forkd-net has died during these streams
		w.end(id, false)
	}
}

// take handles a message. It returns false if a VMM must not get such a message.
func (w *wire) take(m netwire.Message, file *os.File) bool {
	switch m.Kind {
	case netwire.Opened, netwire.Refused:
		w.answer(m.ID, answer{file: file, id: m.ID, reason: usernet.Reason(m.Reason)})
	case netwire.Link:
		return w.takeLink(file)
	case netwire.Finished, netwire.Broken:
		w.mu.Lock()
		w.end(m.ID, m.Kind == netwire.Finished)
		w.mu.Unlock()
	default:
		return false
	}
	return true
}

// takeLink passes a link on. It returns false for a descriptor of another kind.
func (w *wire) takeLink(f *os.File) bool {
	s, err := socketOf(f)
	if err != nil {
		return false
	}
	if w.link == nil || s.domain != unix.AF_UNIX || s.kind != unix.SOCK_SEQPACKET {
		s.Close()
		return w.link == nil
	}
	w.link(s.File)
	return true
}

// answer passes an answer to its waiting request. After a Cancel there is none.
func (w *wire) answer(id uint32, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call := w.calls[id]; call != nil {
		delete(w.calls, id)
		if a.file != nil {
			a.end = &ending{known: make(chan struct{})}
			w.ends[id] = a.end
		}
		call <- a // has room for one
		return
	}
	if a.file != nil {
		a.file.Close()
	}
}
