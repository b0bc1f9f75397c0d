package virtio

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrLater is a handler's answer to a request it cannot do now. The request stays in its queue as
// if it had not been taken: a save includes it, and the next Kick tries it again from its
// beginning.
var ErrLater = errors.New("the request cannot be done now")

// Worker is the loop of a device with a single queue of requests answered immediately. It has no
// goroutine: Kick works in its caller's.
type Worker struct {
	// leaving counts the callers waiting for mu to stop the work. The loop checks it between two
	// requests, so a guest that never stops adding requests cannot delay a pause. It is raised
	// before mu is taken.
	leaving atomic.Int32

	mu     sync.Mutex // held while guest memory is accessed
	queue  *Queue     // nil while not active
	paused bool
	chain  Chain
	handle func(*Chain) (written uint32, err error)
}

// Init sets the handler of requests. An error other than ErrLater breaks the device.
func (w *Worker) Init(handle func(*Chain) (written uint32, err error)) { w.handle = handle }

// InitByAddress sets the handler of requests naming memory without data. The handler uses
// Chain.Ranges.
func (w *Worker) InitByAddress(handle func(*Chain) (written uint32, err error)) {
	w.handle, w.chain.byAddress = handle, true
}

// Start makes q the queue to serve. Requests waiting there already are served at the next Kick.
func (w *Worker) Start(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// Stop forgets the queue. When it returns, no request is being served.
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

// Leaving reports whether a caller waits for the current request to end. The handler of a long
// request checks it now and then, and returns ErrLater.
func (w *Worker) Leaving() bool { return w.leaving.Load() != 0 }

func (w *Worker) lockToStop() {
	w.leaving.Add(1)
	w.mu.Lock()
	w.leaving.Add(-1)
}

// drain serves the requests in the queue. It returns false if it had to stop before the end.
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
