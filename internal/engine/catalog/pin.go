package catalog

import (
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// The layers a sandbox needs are pinned by its snapshot while it exists. The sandbox gets its own
// pin when it needs other layers (its disk after a branch), or when its snapshot is deleted while
// it runs. A pin for each child at its fork would add two fsyncs to every fork. Files that a VM
// maps or has open stay available in any case, also after the daemon has ended.

// sandboxPin is the prefix of the name of a sandbox's pin; its id follows.
const sandboxPin = "vm."

// Pin keeps layers for a sandbox until Unpin, across restarts. It replaces the sandbox's existing
// pin.
func (c *Catalog) Pin(id string, layers []layer.ID) error {
	return c.layers.Pin(sandboxPin+id, layers...)
}

// Unpin removes a sandbox's pin.
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

// SettlePins removes the pins of sandboxes that no longer exist, as reported by alive.
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
