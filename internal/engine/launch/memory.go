package launch

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/sandbox"
)

// Memory decides whether the host has memory for another VM. What it let in
// and has not yet shown in the host's figures is counted as pending.
type Memory struct {
	// Available is the host's available memory in bytes.
	Available func() (int64, error)
	Reserve   int64 // bytes that stay free on the host
	Now       func() time.Time

	mu        sync.Mutex // guards what follows; taken last
	pending   int64
	available int64
	read      time.Time
}

// figuresAge is how old the host's figures may be: reading them for each of a
// thousand children would cost more than it tells (half a millisecond under
// emulation, where a child comes every ten).
const figuresAge = 100 * time.Millisecond

// Admit reserves need bytes until release is called, which is when the VM has
// touched the memory it starts with.
func (a *Memory) Admit(need int64) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.Now(); a.read.IsZero() || now.Sub(a.read) > figuresAge {
		if a.available, err = a.Available(); err != nil {
			return nil, err
		}
		a.read = now
	}
	left := a.available - a.pending - a.Reserve
	if left < need {
		return nil, sandbox.Errorf(sandbox.ErrNoMemory, sandbox.ReasonHostMemory,
			"not enough memory: %d MiB are needed, %d MiB are left beside a reserve of %d MiB",
			need>>20, max(0, left)>>20, a.Reserve>>20)
	}
	a.pending += need
	return sync.OnceFunc(func() {
		a.mu.Lock()
		a.pending -= need
		a.mu.Unlock()
	}), nil
}

// Refresh has the next Admit read the host's figures anew, however young they are.
func (a *Memory) Refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = time.Time{}
}

// Pending is how many bytes are admitted and not released yet.
func (a *Memory) Pending() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}
