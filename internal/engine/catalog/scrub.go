package catalog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// A fork verifies no digests, as this would take longer than the fork. Layers are therefore read
// whole from time to time in the background. A snapshot with an altered layer can no longer be
// forked.

// scrubRate is the number of bytes of layers read per second: about the bandwidth an old disk has
// to spare.
const scrubRate = 64 << 20

// scrubber reads layers in the background. The store records the damage found.
type scrubber struct {
	layers *store.Store
	every  time.Duration // how often each layer is read; 0 disables scrubbing
	// awaitForks and awaitBranches wait until no fork or branch is running.
	awaitForks, awaitBranches func(context.Context) error
	now                       func() time.Time
	log                       *slog.Logger
}

// run checks each layer once per interval, the longest unchecked first. The store records the
// checks, so the next daemon continues where this one ended.
func (s *scrubber) run(ctx context.Context) {
	if s.every <= 0 {
		return
	}
	sched.StandBack(s.log, "scrub")
	defer func() {
		if err := s.layers.SaveChecked(); err != nil {
			s.log.Warn("scrub", "err", err)
		}
	}()
	for ctx.Err() == nil {
		id, due := s.next()
		if !due {
			ctxsleep.For(ctx, max(100*time.Millisecond, min(time.Minute, s.every/8)))
			continue
		}
		s.scrub(ctx, id)
	}
}

func (s *scrubber) scrub(ctx context.Context, id layer.ID) {
	found, err := s.layers.Check(ctx, id, s.now, s.pause)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrNotFound): // collected meanwhile
	case err != nil:
		s.log.Warn("scrub a layer", "layer", id, "err", err)
		ctxsleep.For(ctx, time.Second)
	case found.Damage != "":
		s.log.Error("a layer is damaged; its snapshots are disabled",
			"layer", id, "damage", found.Damage)
	}
}

// next returns the layer with the oldest last check, if that check is long enough ago. A layer
// without digests is skipped until it has them.
func (s *scrubber) next() (next layer.ID, due bool) {
	ids, err := s.layers.IDs()
	if err != nil {
		s.log.Warn("list layers to scrub", "err", err)
		return next, false
	}
	latest := s.now().Add(-s.every)
	for _, id := range ids {
		found, _ := s.layers.Checked(id) // zero if it was never checked
		if found.At.After(latest) || due && !found.At.Before(s.checkedAt(next)) || !s.layers.Hashed(id) {
			continue
		}
		next, due = id, true
	}
	return next, due
}

func (s *scrubber) checkedAt(id layer.ID) time.Time {
	found, _ := s.layers.Checked(id)
	return found.At
}

// pause gives precedence to forks and branches, and limits the rate.
func (s *scrubber) pause(ctx context.Context, bytes int64) error {
	if err := s.awaitBranches(ctx); err != nil {
		return err
	}
	if err := s.awaitForks(ctx); err != nil {
		return err
	}
	ctxsleep.For(ctx, time.Duration(bytes)*time.Second/scrubRate)
	return ctx.Err()
}
