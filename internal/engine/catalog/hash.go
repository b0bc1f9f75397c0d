package catalog

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/snapshot"
)

// maxHashing is how many snapshots may wait for their digests.
const maxHashing = 1024

// HashLater has a snapshot's content digests computed in the background. When
// too many wait, or it fails, Verify asks again, or the next Open does.
func (c *Catalog) HashLater(tag string) {
	select {
	case c.hashing <- tag:
	default:
	}
}

// hashAll computes digests, one snapshot at a time. It stands back while forks
// are under way, and for everything else it runs on a thread of the lowest priority.
func (c *Catalog) hashAll(ctx context.Context) {
	sched.StandBack(c.cfg.Logger, "digests")
	entries, err := c.snapshots.List()
	if err != nil {
		c.cfg.Logger.Warn("list snapshots for digests", "err", err)
	}
	for _, en := range entries {
		if en.Err == nil && !c.snapshots.HasDigests(en) {
			c.HashLater(en.Tag)
		}
	}
	for {
		select {
		case tag := <-c.hashing:
			c.hash(ctx, tag)
		case <-ctx.Done():
			return
		}
	}
}

func (c *Catalog) hash(ctx context.Context, tag string) {
	if en, err := c.snapshots.Get(tag); err == nil && c.snapshots.HasDigests(en) {
		return // it was asked for more than once
	}
	err := c.snapshots.Hash(ctx, tag, c.cfg.AwaitForks)
	if err == nil {
		return
	}
	c.CollectLater() // if it was deleted meanwhile, its layers were in use by this until now
	if ctx.Err() == nil && !errors.Is(err, snapshot.ErrNotFound) {
		c.cfg.Logger.Warn("digest snapshot", "tag", tag, "err", err)
	}
}
