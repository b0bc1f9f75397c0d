package virtio

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrLater is a handler's answer to a request that cannot be done now. The request stays
// in its queue as if it had not been taken, so that a save has it, and the next Kick tries
// it again from its beginning.
var ErrLater = errors.New("the request cannot be done now")

// Worker is the loop of a device whose only queue carries requests that are
// answered at once. It has no goroutine of its own: Kick works in its caller's.
type Worker struct {
	// leaving counts those who wait for mu to stop the work; the loop looks
	// at it between two requests, so that a guest that never stops adding
	// requests cannot hold up a pause. It is raised before mu is taken.
	leaving atomic.Int32

	mu     sync.Mutex // held while guest memory is touched
	queue  *Queue     // nil while not active
	paused bool
	chain  Chain
	handle func(*Chain) (written uint32, err error)
}

// Init sets what to do with a request. An error other than ErrLater breaks the device.
func (w *Worker) Init(handle func(*Chain) (written uint32, err error)) { w.handle = handle }

// InitByAddress is Init for requests that name memory and bring none along: the handler finds
// Chain.Ranges.
func (w *Worker) InitByAddress(handle func(*Chain) (written uint32, err error)) {
	w.handle, w.chain.byAddress = handle, true
}

// Start makes q the queue to serve. Requests that wait there already are
// served at the next Kick.
func (w *Worker) Start(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// Stop forgets the queue; no request is being served when it returns.
func (w *Worker) Stop() {
	w.lockToStop()
	defer w.mu.Unlock()
	w.queue, w.chain = nil, Chain{byAddress: w.chain.byAddress}
}

// Pause implements Device.
func (w *Worker) Pause() {
	w.lockToStop()
	defer w.mu.Unlock()
	w.paused = true
}

// Resume implements Device.
func (w *Worker) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
}

// Kick implements Device.
func (w *Worker) Kick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	if q == nil || w.paused {
		return
	}
	for more := true; more; more = w.leaving.Load() == 0 && q.EnableKicks() {
		q.DisableKicks()
		if !w.drain(q) {
			return
		}
	}
}

// Leaving reports whether somebody waits for the request in work to end. A handler whose
// request is long looks now and then, and gives ErrLater.
func (w *Worker) Leaving() bool { return w.leaving.Load() != 0 }

func (w *Worker) lockToStop() {
	w.leaving.Add(1)
	w.mu.Lock()
	w.leaving.Add(-1)
}

// drain serves what is in the queue; false: as far as it could.
func (w *Worker) drain(q *Queue) bool {
	for w.leaving.Load() == 0 && q.Pop(&w.chain) {
		n, err := w.handle(&w.chain)
		switch {
		case errors.Is(err, ErrLater):
			q.PutBack()
			return false
		case err != nil:
			q.Fail(err)
			return true
		}
		q.Push(w.chain.Head, n)
		q.Notify()
	}
	return true
}
