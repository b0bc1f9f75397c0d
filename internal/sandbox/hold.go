package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/layer/store"
)

// Who keeps the layers that a sandbox needs: its snapshot, as long as that is
// there; a hold of its own from the moment on at which it needs others (its disk
// after a branch), or its snapshot is deleted although it runs. A hold for each
// child at its fork would be two fsyncs on the way of every one. What a VM maps or
// has open is kept by that anyway, also when the daemon has ended.

// vmHold begins the name of a sandbox's hold; its id follows.
const vmHold = "vm."

// holdVM keeps layers for a sandbox until it ends.
func (e *Engine) holdVM(b *box, m *machine, ids []layer.ID) error {
	if err := e.layers.Hold(vmHold+b.info.ID, ids...); err != nil {
		return err
	}
	m.disks.setHeld()
	return nil
}

// holdForUsers keeps a snapshot's layers for the sandboxes that run from it.
func (e *Engine) holdForUsers(tag string) error {
	entry, err := e.store.Get(tag)
	if err != nil {
		return nil // it cannot be read: what is mapped stays, and there is nothing to be branched from
	}
	for _, id := range e.usersOf(tag) {
		b, m, err := e.running(id)
		if err != nil {
			continue // it has ended
		}
		_, info, err := e.find(id)
		if _, hash := info.Base(); err != nil || hash != entry.ContentHash {
			continue
		}
		ids := entry.Manifest.LayerIDs()
		for _, l := range m.disks.list() {
			ids = append(ids, l.Base...)
		}
		if err := e.holdVM(b, m, ids); err != nil {
			return storeError(err)
		}
	}
	return nil
}

// releaseVM ends a sandbox's hold if it has one.
func (e *Engine) releaseVM(b *box) {
	if !b.disks.isHeld() {
		return
	}
	if err := e.layers.Release(vmHold + b.info.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
		e.cfg.Logger.Warn("release a sandbox's layers", "sandbox", b.info.ID, "err", err)
	}
	e.collectLater()
}

// settleHolds finds the holds of adopted sandboxes and releases those of dead ones.
func (e *Engine) settleHolds() error {
	holds, err := e.layers.Holds()
	if err != nil {
		return err
	}
	for name := range holds {
		id, ours := strings.CutPrefix(name, vmHold)
		if !ours {
			continue
		}
		if b := e.boxes[id]; b != nil { // nobody else is here yet
			b.disks.setHeld()
			continue
		}
		if err := e.layers.Release(name); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// collectLater has layers that nobody needs any more removed in the background.
func (e *Engine) collectLater() {
	select {
	case e.collecting <- struct{}{}:
	default:
	}
}

// collectAll removes layers that nobody needs: at first what the last engine left.
// One that somebody still has open, such as a VM that is ending, is looked at
// again after a while.
func (e *Engine) collectAll(ctx context.Context) {
	const first, last = time.Second, time.Minute
	e.collectLater()
	for wait := first; ; {
		select {
		case <-e.collecting:
			wait = min(2*wait, last)
			if e.collect() == 0 {
				wait = first
			} else {
				time.AfterFunc(wait, e.collectLater)
			}
		case <-ctx.Done():
			return
		}
	}
}

// collect returns how many layers nobody needs and somebody has open.
func (e *Engine) collect() (busy int) {
	r, err := e.layers.GC(false)
	if err != nil {
		e.cfg.Logger.Warn("collect layers", "err", err)
	} else if len(r.Layers)+r.Temps > 0 {
		e.cfg.Logger.Info("layers collected", "layers", len(r.Layers), "temporary", r.Temps, "bytes", r.Bytes)
	}
	return r.Busy
}

// CollectReport is what a collection of layers removed, or would remove.
type CollectReport struct {
	DryRun    bool
	Layers    []string // ids
	Temporary int      // leftovers of writers that are dead
	Bytes     int64
}

// CollectLayers removes layers that nothing needs; with dryRun it only says which.
func (e *Engine) CollectLayers(ctx context.Context, dryRun bool) (CollectReport, error) {
	_, done, err := e.begin(ctx)
	if err != nil {
		return CollectReport{}, err
	}
	defer done()
	r, err := e.layers.GC(dryRun)
	if errors.Is(err, store.ErrDamaged) {
		return CollectReport{}, problem(ErrConflict, "move that file out of the store's layers/holds if nothing needs it", "%w", err)
	}
	if err != nil {
		return CollectReport{}, fmt.Errorf("collect: %w", err)
	}
	out := CollectReport{DryRun: dryRun, Temporary: r.Temps, Bytes: r.Bytes, Layers: make([]string, 0, len(r.Layers))}
	for _, id := range r.Layers {
		out.Layers = append(out.Layers, id.String())
	}
	return out, nil
}
