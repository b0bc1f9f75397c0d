package catalog

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// maxHashing limits the number of snapshots waiting for their digests.
const maxHashing = 1024

// HashLater computes a snapshot's content digests in the background. If too many snapshots wait, or
// hashing fails, Verify or the next Open requests it again.
func (c *Catalog) HashLater(tag string) { c.hasher.later(tag) }

// hasher computes missing digests of snapshots in the background.
type hasher struct {
	snapshots    *snapshot.Store
	awaitForks   func(context.Context) error
	collectLater func()
	log          *slog.Logger
	tags         chan string // of snapshots without digests
}

func (h *hasher) later(tag string) {
	select {
	case h.tags <- tag:
	default:
	}
}

// run computes digests, one snapshot at a time. It pauses while forks are running, and runs on a
// thread of the lowest priority.
func (h *hasher) run(ctx context.Context) {
	sched.StandBack(h.log, "digests")
	entries, err := h.snapshots.List()
	if err != nil {
		h.log.Warn("list snapshots for digests", "err", err)
	}
	for _, en := range entries {
		if en.Err == nil && !h.snapshots.HasDigests(en) && len(h.snapshots.Absent(en)) == 0 {
			h.later(en.Tag)
		}
	}
	for {
		select {
		case tag := <-h.tags:
			h.hash(ctx, tag)
		case <-ctx.Done():
			return
		}
	}
}

func (h *hasher) hash(ctx context.Context, tag string) {
	if en, err := h.snapshots.Get(tag); err == nil && (h.snapshots.HasDigests(en) || len(h.snapshots.Absent(en)) > 0) {
		return // it was requested more than once, or is requested again when all of it is here
	}
	err := h.snapshots.Hash(ctx, tag, h.awaitForks)
	if err == nil {
		return
	}
	h.collectLater() // if it was deleted meanwhile, its layers were in use here until now
	if ctx.Err() == nil && !errors.Is(err, storeerr.ErrNotFound) {
		h.log.Warn("digest snapshot", "tag", tag, "err", err)
	}
}
