package sched

import (
	"context"
	"sync"
	"time"
)

// Traffic lets background work pause during forks and during the first answers of their children.
// On a small host the background work would take the CPUs needed for them.
type Traffic struct {
	mu    sync.Mutex
	busy  int
	quiet chan struct{} // closed when busy is 0; nil if it was never busy
}

// Enter begins a fork. Leave must follow.
func (t *Traffic) Enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy++; t.busy == 1 {
		t.quiet = make(chan struct{})
	}
}

// Leave ends a fork.
func (t *Traffic) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy--; t.busy == 0 {
		close(t.quiet)
	}
}

// LeaveSoon ends a fork with a delay, because its children are about to get their first requests.
// Background work would slow these down.
func (t *Traffic) LeaveSoon() { time.AfterFunc(untilAsked, t.Leave) }

// untilAsked is the assumed time from a fork's answer to the caller's next request.
const untilAsked = 200 * time.Millisecond

// First begins a sandbox's first answer, which may take long. done ends it, or limit if that is
// sooner: background work must not wait for a long program.
func (t *Traffic) First(limit time.Duration) (done func()) {
	t.Enter()
	leave := sync.OnceFunc(t.Leave)
	timer := time.AfterFunc(limit, leave)
	return func() {
		timer.Stop()
		leave()
	}
}

// Wait waits until no fork is running, or until ctx ends.
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
