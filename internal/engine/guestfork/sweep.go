package guestfork

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// SweepLater requests a check for unused transient snapshots.
func (f *Families) SweepLater() {
	if !f.any.Load() {
		return
	}
	select {
	case f.sweep <- struct{}{}:
	default: // a check is already pending
	}
}

// sweepRetry is the time until a snapshot that was in use is checked again.
const sweepRetry = time.Second

// Run deletes unused snapshots of guests' forks until ctx ends. A snapshot is unused if no sandbox
// runs from it and no snapshot is based on it. Run begins with snapshots left by an earlier daemon.
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

// Sweep is one round of Run. It returns true if a snapshot was temporarily in use. It deletes
// leaves first, as their parents may be unused afterwards.
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
			case errors.Is(err, sandbox.ErrConflict): // temporarily in use: a branch of a child reads it
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

// unneeded returns the unused transient snapshots.
func (f *Families) unneeded() []string {
	total, unneeded, err := f.cfg.Snapshots.Transient()
	if err != nil {
		f.cfg.Log.Warn("list snapshots of guests' forks", "err", err)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.any.Store(total+len(f.held) > 0) // under mu, as in Keep; a later Keep calls SweepLater at its end
	return slices.DeleteFunc(unneeded, func(tag string) bool { return f.held[tag] })
}
