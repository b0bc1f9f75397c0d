package catalog

import (
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// What pins the layers that a sandbox needs: its snapshot, as long as that is there; a pin of
// its own from the moment on at which it needs others (its disk after a branch), or its
// snapshot is deleted although it runs. A pin for each child at its fork would be two
// fsyncs on the way of every one. What a VM maps or has open stays anyway, also when
// the daemon has ended.

// sandboxPin begins the name of a sandbox's pin; its id follows.
const sandboxPin = "vm."

// Pin keeps layers for a sandbox until Unpin, across restarts. It replaces the pin that the
// sandbox has.
func (c *Catalog) Pin(id string, layers []layer.ID) error {
	return c.layers.Pin(sandboxPin+id, layers...)
}

// Unpin ends a sandbox's pin.
func (c *Catalog) Unpin(id string) {
	if err := c.unpin(sandboxPin + id); err != nil {
		c.cfg.Logger.Warn("unpin a sandbox's layers", "sandbox", id, "err", err)
	}
	c.CollectLater()
}

func (c *Catalog) unpin(name string) error {
	if err := c.layers.Unpin(name); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// SettlePins removes the pins of sandboxes that are gone, as alive reports of each.
func (c *Catalog) SettlePins(alive func(id string) bool) error {
	pins, err := c.layers.Pins()
	if err != nil {
		return err
	}
	for name := range pins {
		id, ours := strings.CutPrefix(name, sandboxPin)
		if !ours || alive(id) {
			continue
		}
		if err := c.unpin(name); err != nil {
			return err
		}
	}
	return nil
}
