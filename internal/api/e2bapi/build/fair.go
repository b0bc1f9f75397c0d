package build

import (
	"context"
	"sync"
)

// fair gives out turns. A free turn goes to the owner with the fewest turns. Among the calls of one
// owner, the one that has waited longest is first.
type fair struct {
	mu      sync.Mutex // guards the fields below
	free    int
	most    int            // turns of one owner at a time; 0: no limit
	held    map[string]int // turns, by owner
	waiting []*waiter      // oldest first
}

// waiter is a call that waits for its turn.
type waiter struct {
	owner string
	ready chan struct{} // closed under mu when it has its turn
}

func newFair(turns, each int) *fair { return &fair{free: turns, most: each, held: map[string]int{}} }

// take waits for a turn. The caller must call done once.
func (f *fair) take(ctx context.Context, owner string) (done func(), err error) {
	w := &waiter{owner, make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, w)
	f.grantLocked()
	f.mu.Unlock()
	done = func() { f.leave(owner) }
	select {
	case <-w.ready:
		return done, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-w.ready: // both happened: pass the turn on
		f.leaveLocked(owner)
	default:
		f.dropLocked(w)
	}
	return nil, context.Cause(ctx)
}

func (f *fair) leave(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaveLocked(owner)
}

func (f *fair) leaveLocked(owner string) {
	f.free++
	if f.held[owner]--; f.held[owner] == 0 {
		delete(f.held, owner)
	}
	f.grantLocked()
}

func (f *fair) grantLocked() {
	for f.free > 0 {
		var next *waiter
		for _, w := range f.waiting {
			if f.most > 0 && f.held[w.owner] >= f.most {
				continue
			}
			if next == nil || f.held[w.owner] < f.held[next.owner] {
				next = w
			}
		}
		if next == nil {
			return
		}
		f.dropLocked(next)
		f.free--
		f.held[next.owner]++
		close(next.ready)
	}
}

func (f *fair) dropLocked(w *waiter) {
	for i, have := range f.waiting {
		if have == w {
			f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
			return
		}
	}
}
