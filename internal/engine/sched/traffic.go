package sched

import (
	"context"
	"sync"
	"time"
)

// Traffic lets background work stand back while forks are under way, and the first answers
// that they were made for: on a small host it would take the very CPUs that these need.
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

// LeaveSoon ends a fork whose children are about to be asked something: what stands back would
// be in the way of that just then.
func (t *Traffic) LeaveSoon() { time.AfterFunc(untilAsked, t.Leave) }

// untilAsked is how long a caller may take from a fork's answer to its next request.
const untilAsked = 200 * time.Millisecond

// First is a sandbox's first answer, which may take long: done ends it, or limit if that is
// sooner, as what stands back must not wait for a program.
func (t *Traffic) First(limit time.Duration) (done func()) {
	t.Enter()
	leave := sync.OnceFunc(t.Leave)
	timer := time.AfterFunc(limit, leave)
	return func() {
		timer.Stop()
		leave()
	}
}

// Wait returns when nothing is under way, or when ctx ends.
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
