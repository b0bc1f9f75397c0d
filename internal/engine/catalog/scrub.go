package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/layer/store"
)

// A fork reads no digest: it would cost more than the fork. So layers are read whole
// now and then in the background, and a snapshot with one that has changed is not
// forked any more.

// scrubRate is how many bytes of layers are read in a second: about what an old disk
// gives without others noticing.
const scrubRate = 64 << 20

// scrubAll checks each layer once in an interval, the one that waited longest first. The
// store notes which, so that the next daemon goes on where this one ended.
func (c *Catalog) scrubAll(ctx context.Context) {
	every := c.cfg.ScrubInterval
	if every <= 0 {
		return
	}
	sched.StandBack(c.cfg.Logger, "scrub")
	defer func() {
		if err := c.layers.SaveChecked(); err != nil {
			c.cfg.Logger.Warn("scrub", "err", err)
		}
	}()
	for ctx.Err() == nil {
		id, due := c.scrubNext(every)
		if !due {
			sched.Sleep(ctx, max(100*time.Millisecond, min(time.Minute, every/8)))
			continue
		}
		c.scrub(ctx, id)
	}
}

func (c *Catalog) scrub(ctx context.Context, id layer.ID) {
	found, err := c.layers.Check(ctx, id, c.cfg.Now, c.scrubPause)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrNotFound): // collected meanwhile
	case err != nil:
		c.cfg.Logger.Warn("scrub a layer", "layer", id, "err", err)
		sched.Sleep(ctx, time.Second)
	case found.Damage != "":
		c.cfg.Logger.Error("a layer is damaged; snapshots that need it are not forked any more",
			"layer", id, "damage", found.Damage)
	}
}

// scrubNext is the layer whose last check is longest ago, if that is long enough. One
// without digests comes when it has them.
func (c *Catalog) scrubNext(every time.Duration) (next layer.ID, due bool) {
	ids, err := c.layers.IDs()
	if err != nil {
		c.cfg.Logger.Warn("list layers to scrub", "err", err)
		return next, false
	}
	latest := c.cfg.Now().Add(-every)
	for _, id := range ids {
		found, _ := c.layers.Checked(id) // of none the time is zero
		if found.At.After(latest) || due && !found.At.Before(c.checkedAt(next)) || !c.layers.Hashed(id) {
			continue
		}
		next, due = id, true
	}
	return next, due
}

func (c *Catalog) checkedAt(id layer.ID) time.Time {
	found, _ := c.layers.Checked(id)
	return found.At
}

// scrubPause lets forks and branches go first, and keeps to the rate.
func (c *Catalog) scrubPause(ctx context.Context, bytes int64) error {
	if err := c.cfg.AwaitBranches(ctx); err != nil {
		return err
	}
	if err := c.cfg.AwaitForks(ctx); err != nil {
		return err
	}
	sched.Sleep(ctx, time.Duration(bytes)*time.Second/scrubRate)
	return ctx.Err()
}
