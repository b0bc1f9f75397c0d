package sched

import (
	"context"
	"sync"
)

// Traffic lets background work stand back while forks are under way: on a small
// host it would take the very CPUs that the fork needs.
type Traffic struct {
	mu    sync.Mutex
	busy  int
	quiet chan struct{} // closed when busy is 0; nil means it never was busy
}

// Enter begins a fork; Leave must follow.
func (t *Traffic) Enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy++; t.busy == 1 {
		t.quiet = make(chan struct{})
	}
}

// Leave ends it.
func (t *Traffic) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy--; t.busy == 0 {
		close(t.quiet)
	}
}

// Wait returns when no fork is under way, or when ctx ends.
func (t *Traffic) Wait(ctx context.Context) error {
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
