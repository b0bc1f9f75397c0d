package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// CollectLater removes unused layers in the background.
func (c *Catalog) CollectLater() { c.collector.later() }

// collector removes unused layers and retired snapshots.
type collector struct {
	snapshots *snapshot.Store
	layers    *store.Store
	tags      *tagTable
	sandboxes Sandboxes
	log       *slog.Logger
	wake      chan struct{} // has a value when there may be something to collect
}

func (c *collector) later() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run removes unused layers, starting with the ones left by the previous engine. A layer that is
// still open, for instance in a VM that is ending, is checked again after a while.
func (c *collector) run(ctx context.Context) {
	const first, last = time.Second, 10 * time.Second
	c.later()
	for wait := first; ; {
		select {
		case <-c.wake:
			wait = min(2*wait, last)
			if c.collect() == 0 {
				wait = first
			} else {
				time.AfterFunc(wait, c.later)
			}
		case <-ctx.Done():
			return
		}
	}
}

// collect returns the number of unused layers that are still open.
func (c *collector) collect() (busy int) {
	c.dropRetired()
	r, err := c.layers.GC(false)
	if err != nil {
		c.log.Warn("collect layers", "err", err)
	} else if len(r.Layers)+r.Temps > 0 {
		c.log.Info("layers collected", "layers", len(r.Layers), "temporary", r.Temps, "bytes", r.Bytes)
	}
	return r.Busy
}

// dropRetired removes retired snapshots without sandboxes based on them.
func (c *collector) dropRetired() {
	unused := c.tags.retiredWithoutForks()
	if len(unused) == 0 {
		return
	}
	bases := c.sandboxes.Bases() // after the forks, see Catalog.needed
	for _, hash := range unused {
		if bases[hash] {
			continue
		}
		if err := c.snapshots.Drop(hash); err != nil {
			c.log.Warn("remove a snapshot that was deleted while in use", "content", hash, "err", err)
			continue // the next collection tries again
		}
		c.tags.forgetRetired(hash)
	}
}

// Collect removes unused layers. With dryRun it only lists them.
func (c *Catalog) Collect(dryRun bool) (sandbox.CollectReport, error) {
	r, err := c.layers.GC(dryRun)
	if errors.Is(err, store.ErrDamaged) {
		return sandbox.CollectReport{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonPinDamaged, "%w", err)
	}
	if err != nil {
		return sandbox.CollectReport{}, fmt.Errorf("collect: %w", err)
	}
	out := sandbox.CollectReport{DryRun: dryRun, Temporary: r.Temps, Bytes: r.Bytes}
	out.Layers = make([]string, 0, len(r.Layers))
	for _, id := range r.Layers {
		out.Layers = append(out.Layers, id.String())
	}
	return out, nil
}
