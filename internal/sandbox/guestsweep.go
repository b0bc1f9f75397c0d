package sandbox

import (
	"context"
	"errors"
	"time"
)

// kick has the transient snapshots looked at.
func (g *guests) kick() {
	if !g.any.Load() {
		return
	}
	select {
	case g.sweep <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// sweepRetry is when a snapshot that was in use at that moment is looked at again.
const sweepRetry = time.Second

// sweepTransient deletes the snapshots of guests' forks that nobody needs: no
// sandbox runs from them and no snapshot is built on them. It begins with those
// that an earlier daemon left.
func (e *Engine) sweepTransient(ctx context.Context) {
	e.guests.any.Store(true)
	e.guests.kick()
	retry := time.NewTimer(sweepRetry)
	defer retry.Stop()
	retry.Stop()
	for {
		select {
		case <-e.guests.sweep:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		if e.sweepOnce(ctx) {
			retry.Reset(sweepRetry)
		}
	}
}

// sweepOnce deletes leaves first: what one was built on may be free after it.
func (e *Engine) sweepOnce(ctx context.Context) (again bool) {
	for {
		deleted := false
		for _, tag := range e.unneeded() {
			err := e.DeleteSnapshot(ctx, tag, DeleteOptions{})
			switch {
			case err == nil:
				deleted = true
				e.cfg.Logger.Info("guest fork: snapshot deleted", "tag", tag)
			case ctx.Err() != nil, errors.Is(err, ErrClosing):
				return false
			case errors.Is(err, ErrConflict): // in use for a moment: a branch of a child reads it
				again = true
			case !errors.Is(err, ErrNotFound):
				e.cfg.Logger.Warn("guest fork: delete snapshot", "tag", tag, "err", err)
			}
		}
		if !deleted {
			return again
		}
	}
}

// unneeded are the transient snapshots without dependents and sandboxes.
func (e *Engine) unneeded() []string {
	entries, err := e.store.List()
	if err != nil {
		e.cfg.Logger.Warn("list snapshots of guests' forks", "err", err)
		return nil
	}
	tree := newLineage(entries)
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	any := len(e.guests.held) > 0
	defer func() { e.guests.any.Store(any) }() // under mu, as hold does; whoever it held since has kicked
	for _, en := range entries {
		m := en.Manifest
		if m == nil || m.Branch == nil || !m.Branch.Transient {
			continue
		}
		any = true
		_, writing := e.creating[en.Tag]
		if len(tree.children[en.Tag]) == 0 && !writing && !e.guests.held[en.Tag] && len(e.usersLocked(en.Tag)) == 0 {
			out = append(out, en.Tag)
		}
	}
	return out
}
