package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/layer/store"
	"github.com/forkd/forkd/internal/sandbox"
)

// CollectLater has layers that nobody needs any more removed in the background.
func (c *Catalog) CollectLater() {
	select {
	case c.collecting <- struct{}{}:
	default:
	}
}

// collectAll removes layers that nobody needs: at first what the last engine left.
// One that somebody still has open, such as a VM that is ending, is looked at
// again after a while.
func (c *Catalog) collectAll(ctx context.Context) {
	const first, last = time.Second, time.Minute
	c.CollectLater()
	for wait := first; ; {
		select {
		case <-c.collecting:
			wait = min(2*wait, last)
			if c.collect() == 0 {
				wait = first
			} else {
				time.AfterFunc(wait, c.CollectLater)
			}
		case <-ctx.Done():
			return
		}
	}
}

// collect returns how many layers nobody needs and somebody has open.
func (c *Catalog) collect() (busy int) {
	c.dropRetired()
	r, err := c.layers.GC(false)
	if err != nil {
		c.cfg.Logger.Warn("collect layers", "err", err)
	} else if len(r.Layers)+r.Temps > 0 {
		c.cfg.Logger.Info("layers collected", "layers", len(r.Layers), "temporary", r.Temps, "bytes", r.Bytes)
	}
	return r.Busy
}

// Collect removes layers that nothing needs; with dryRun it only says which.
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
