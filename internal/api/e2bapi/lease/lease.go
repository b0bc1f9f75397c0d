// Package lease ends sandboxes at their deadlines, for an engine without deadlines. It has one
// timer, for the earliest deadline. It cannot pause sandboxes, because such an engine cannot.
package lease

import (
	"context"
	"sync"
	"time"
)

// Keeper stores the deadlines. Run enforces them.
type Keeper struct {
	end func(ctx context.Context, id string)
	now func() time.Time

	mu      sync.Mutex
	ends    map[string]time.Time
	changed chan struct{} // capacity 1
}

// New returns a Keeper that calls end for each sandbox at its deadline.
func New(end func(ctx context.Context, id string), now func() time.Time) *Keeper {
	return &Keeper{end: end, now: now, ends: map[string]time.Time{}, changed: make(chan struct{}, 1)}
}

// Set replaces the deadline of a sandbox. Zero removes it.
func (k *Keeper) Set(id string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at.IsZero() {
		delete(k.ends, id)
	} else {
		k.ends[id] = at
	}
	select {
	case k.changed <- struct{}{}:
	default: // Run checks in any case
	}
}

// Run ends sandboxes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		due, next := k.due()
		for _, id := range due {
			ending.Go(func() { k.end(ctx, id) })
		}
		var timer *time.Timer
		var rings <-chan time.Time // never, without a deadline
		if !next.IsZero() {
			timer = time.NewTimer(next.Sub(k.now()))
			rings = timer.C
		}
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-rings:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// due removes and returns the sandboxes past their deadline, and returns the next deadline.
func (k *Keeper) due() (ids []string, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for id, at := range k.ends {
		switch {
		case !at.After(now):
			ids = append(ids, id)
			delete(k.ends, id)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return ids, next
}
