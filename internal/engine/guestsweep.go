package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/sandbox"
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
			err := e.DeleteSnapshot(ctx, tag, sandbox.DeleteOptions{})
			switch {
			case err == nil:
				deleted = true
				e.cfg.Logger.Info("guest fork: snapshot deleted", "tag", tag)
			case ctx.Err() != nil, errors.Is(err, sandbox.ErrClosing):
				return false
			case errors.Is(err, sandbox.ErrConflict): // in use for a moment: a branch of a child reads it
				again = true
			case !errors.Is(err, sandbox.ErrNotFound):
				e.cfg.Logger.Warn("guest fork: delete snapshot", "tag", tag, "err", err)
			}
		}
		if !deleted {
			return again
		}
	}
}

// unneeded are the transient snapshots that nothing needs.
func (e *Engine) unneeded() []string {
	total, unneeded, err := e.catalog.Transient()
	if err != nil {
		e.cfg.Logger.Warn("list snapshots of guests' forks", "err", err)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.guests.any.Store(total+len(e.guests.held) > 0) // under mu, as hold does; whoever it held since has kicked
	return slices.DeleteFunc(unneeded, func(tag string) bool { return e.guests.held[tag] })
}
