package guestfork

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// SweepLater has the transient snapshots looked at: one may be needed no more.
func (f *Families) SweepLater() {
	if !f.any.Load() {
		return
	}
	select {
	case f.sweep <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// sweepRetry is when a snapshot that was in use at that moment is looked at again.
const sweepRetry = time.Second

// Run deletes the snapshots of guests' forks that nobody needs until ctx ends: no
// sandbox runs from them and no snapshot is built on them. It begins with those
// that an earlier daemon left.
func (f *Families) Run(ctx context.Context) {
	f.any.Store(true)
	f.SweepLater()
	retry := time.NewTimer(sweepRetry)
	defer retry.Stop()
	retry.Stop()
	for {
		select {
		case <-f.sweep:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		if f.Sweep(ctx) {
			retry.Reset(sweepRetry)
		}
	}
}

// Sweep is one round of Run; again: a snapshot was in use for a moment. It deletes leaves
// first: what one was built on may be free after it.
func (f *Families) Sweep(ctx context.Context) (again bool) {
	for {
		deleted := false
		for _, tag := range f.unneeded() {
			err := f.delete(ctx, tag)
			switch {
			case err == nil:
				deleted = true
				f.cfg.Log.Info("guest fork: snapshot deleted", "tag", tag)
			case ctx.Err() != nil, errors.Is(err, sandbox.ErrClosing):
				return false
			case errors.Is(err, sandbox.ErrConflict): // in use for a moment: a branch of a child reads it
				again = true
			case !errors.Is(err, sandbox.ErrNotFound):
				f.cfg.Log.Warn("guest fork: delete snapshot", "tag", tag, "err", err)
			}
		}
		if !deleted {
			return again
		}
	}
}

func (f *Families) delete(ctx context.Context, tag string) error {
	_, done, err := f.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return f.cfg.Snapshots.Delete(tag, sandbox.DeleteOptions{})
}

// unneeded are the transient snapshots that nothing needs.
func (f *Families) unneeded() []string {
	total, unneeded, err := f.cfg.Snapshots.Transient()
	if err != nil {
		f.cfg.Log.Warn("list snapshots of guests' forks", "err", err)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.any.Store(total+len(f.held) > 0) // under mu, as hold does; whoever it held since has kicked
	return slices.DeleteFunc(unneeded, func(tag string) bool { return f.held[tag] })
}
