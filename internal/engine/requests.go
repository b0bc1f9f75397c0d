package engine

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/network"
)

// List returns all sandboxes, oldest first, including failed ones.
func (e *Engine) List() []sandbox.Info {
	return network.Traffic(e.wires, e.sandboxes.WithUse(e.sandboxes.List()))
}

// Get returns one sandbox.
func (e *Engine) Get(id string) (sandbox.Info, error) {
	_, info, err := e.sandboxes.Find(id)
	return info, err
}

// DeleteSnapshot deletes a snapshot without dependants; see DeleteOptions for the others. Sandboxes
// running from a deleted snapshot keep running.
func (e *Engine) DeleteSnapshot(ctx context.Context, tag string, o sandbox.DeleteOptions) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := e.catalog.Delete(tag, o); err != nil {
		return err
	}
	e.families.SweepLater() // its parents may now be unused
	return nil
}
