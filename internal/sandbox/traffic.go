package sandbox

import (
	"context"
	"sync"
)

// traffic lets background work stand back while forks are under way: on a small
// host it would take the very CPUs that the fork needs.
type traffic struct {
	mu    sync.Mutex
	busy  int
	quiet chan struct{} // closed when busy is 0; nil means it never was busy
}

func (t *traffic) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy++; t.busy == 1 {
		t.quiet = make(chan struct{})
	}
}

func (t *traffic) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy--; t.busy == 0 {
		close(t.quiet)
	}
}

// wait returns when no fork is under way, or when ctx ends.
func (t *traffic) wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		busy, quiet := t.busy, t.quiet
		t.mu.Unlock()
		if busy == 0 {
			return ctx.Err()
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
