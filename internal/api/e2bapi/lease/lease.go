// Package lease ends sandboxes at their deadlines, for an engine that keeps none itself. It
// has one timer, for the earliest. It pauses nothing: such an engine cannot.
package lease

import (
	"context"
	"sync"
	"time"
)

// Keeper knows the deadlines. Run carries them out.
type Keeper struct {
	end func(ctx context.Context, id string)
	now func() time.Time

	mu      sync.Mutex
	ends    map[string]time.Time
	changed chan struct{} // has room for one
}

// New makes a Keeper that calls end for each sandbox whose time has come.
func New(end func(ctx context.Context, id string), now func() time.Time) *Keeper {
	return &Keeper{end: end, now: now, ends: map[string]time.Time{}, changed: make(chan struct{}, 1)}
}

// Set gives a sandbox a deadline in place of an earlier one; zero: none.
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
	default: // Run looks anyway
	}
}

// Run ends sandboxes until ctx does.
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

// due takes out those whose time has come, and tells the next deadline.
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
