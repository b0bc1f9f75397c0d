package virtio

import (
	"sync"
	"sync/atomic"
)

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

// Init sets what to do with a request. An error breaks the device.
func (w *Worker) Init(handle func(*Chain) (written uint32, err error)) { w.handle = handle }

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
	w.queue, w.chain = nil, Chain{}
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
		w.drain(q)
	}
}

func (w *Worker) lockToStop() {
	w.leaving.Add(1)
	w.mu.Lock()
	w.leaving.Add(-1)
}

func (w *Worker) drain(q *Queue) {
	for w.leaving.Load() == 0 && q.Pop(&w.chain) {
		n, err := w.handle(&w.chain)
		if err != nil {
			q.Fail(err)
			return
		}
		q.Push(w.chain.Head, n)
		q.Notify()
	}
}
