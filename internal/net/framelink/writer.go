// Package framelink writes frames to the link of a member of a private network, a SEQPACKET socket.
// Writing never waits: frames without room wait in a bounded queue, as in a network card's, because
// TCP takes each lost one for a congested network. Both ends of a link use it.
package framelink

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// queueMax limits the bytes that wait for one link.
const queueMax = 512 << 10

// Budget limits the bytes that wait for all links of a process. Its methods are safe for concurrent
// use.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	if b.used.Add(int64(n)) > b.most {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *Budget) free(n int) {
	if b != nil {
		b.used.Add(int64(-n))
	}
}

// Writer writes to one link. Its methods are safe for concurrent use.
type Writer struct {
	raw    syscall.RawConn
	budget *Budget // may be nil

	mu       sync.Mutex // guards the fields below
	waiting  [][]byte   // the first one is being written
	bytes    int        // of waiting
	draining bool       // a goroutine writes them
	closed   bool
	wg       sync.WaitGroup
}

// New returns a writer to a socket in non-blocking mode. The budget may be nil.
func New(raw syscall.RawConn, budget *Budget) *Writer { return &Writer{raw: raw, budget: budget} }

// Send writes a message of several parts. It drops the message if too much waits already. It does
// not keep the parts.
func (w *Writer) Send(parts ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.waiting) == 0 && w.writeNow(parts) {
		return
	}
	b := bytes.Join(parts, nil)
	if w.bytes+len(b) > queueMax || !w.budget.take(len(b)) {
		return
	}
	w.waiting = append(w.waiting, b)
	w.bytes += len(b)
	if !w.draining {
		w.draining = true
		w.wg.Go(w.drain)
	}
}

// writeNow reports whether the message was written, or never can be.
func (w *Writer) writeNow(parts [][]byte) (done bool) {
	err := w.raw.Control(func(fd uintptr) {
		_, err := unix.SendmsgBuffers(int(fd), parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		done = !errors.Is(err, unix.EAGAIN)
	})
	return done || err != nil
}

// drain writes the waiting messages. It ends after the last one, or when the socket is closed.
func (w *Writer) drain() {
	for {
		w.mu.Lock()
		if len(w.waiting) == 0 || w.closed {
			w.draining, w.waiting = false, nil
			w.budget.free(w.bytes)
			w.bytes = 0
			w.mu.Unlock()
			return
		}
		b := w.waiting[0]
		w.mu.Unlock()
		err := w.raw.Write(func(fd uintptr) bool {
			_, err := unix.SendmsgBuffers(int(fd), [][]byte{b}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			return !errors.Is(err, unix.EAGAIN)
		})
		w.mu.Lock()
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		w.bytes -= len(b)
		w.budget.free(len(b))
		w.closed = w.closed || err != nil
		w.mu.Unlock()
	}
}

// Close drops what waits. The socket is closed before, which ends a write in progress.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
