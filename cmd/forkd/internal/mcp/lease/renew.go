package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run renews the leases until ctx ends.
func (h *Holder) Run(ctx context.Context) {
	t := time.NewTicker(h.TTL / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			h.Renew(ctx)
		}
	}
}

// Renew renews the leases once.
func (h *Holder) Renew(ctx context.Context) {
	if h.idle() {
		return
	}
	for _, id := range h.ids(func(l leased) bool { return !l.kept }) {
		h.renew(ctx, id)
	}
}

func (h *Holder) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Idle > 0 && h.busy == 0 && time.Since(h.used) > h.Idle
}

// renew renews one lease. A request takes at most a third of a TTL, so that a daemon that hangs
// does not delay the renewal of other sandboxes for longer.
func (h *Holder) renew(ctx context.Context, id string) {
	ttl, ok := h.rest(id)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.TTL/3)
	defer cancel()
	err := h.Daemon.SetTTL(ctx, id, ttl)
	if err == nil {
		h.undoIfKept(ctx, id)
		return
	}
	if there, asked := h.Daemon.Exists(ctx, id); asked == nil && !there {
		h.Forget(id)
		return
	}
	h.Log.Warn("a sandbox's lease was not renewed", "sandbox", id, "error", err)
}

// rest returns the TTL of the next renewal. It returns false if the sandbox ends within the TTL it
// already has, or is kept.
func (h *Holder) rest(id string) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, ok := h.of[id]
	if !ok || l.kept {
		return 0, false
	}
	if l.end.IsZero() {
		return h.TTL, true
	}
	left := time.Until(l.end)
	return min(left, h.TTL), left >= time.Second
}

// undoIfKept repairs the lifetime of a sandbox that was kept during its renewal.
func (h *Holder) undoIfKept(ctx context.Context, id string) {
	h.mu.Lock()
	l := h.of[id]
	h.mu.Unlock()
	if !l.kept {
		return
	}
	ttl := time.Duration(0)
	if !l.end.IsZero() {
		ttl = max(time.Second, time.Until(l.end))
	}
	if err := h.Daemon.SetTTL(ctx, id, ttl); err != nil {
		h.Log.Warn("a kept sandbox may end with the session", "sandbox", id, "error", err)
	}
}

// End kills the sandboxes that are not kept. Sandboxes added later are refused. It returns the
// number of ended sandboxes. Those it could not kill end with their TTL.
func (h *Holder) End(ctx context.Context) (int, error) {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	var errs []error
	ended := 0
	for _, id := range h.ids(func(l leased) bool { return !l.kept }) {
		if err := h.Daemon.Kill(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("end sandbox %s: %w", id, err))
			continue
		}
		h.Forget(id)
		ended++
	}
	return ended, errors.Join(errs...)
}
