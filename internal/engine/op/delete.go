package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Deletion deletes snapshots.
type Deletion struct{ e *Ops }

// NewDeletion returns Deletion.
func NewDeletion(o *Ops) *Deletion { return &Deletion{o} }

// DeleteSnapshot deletes a snapshot without dependants; see DeleteOptions for the others. Sandboxes
// running from a deleted snapshot keep running.
func (d *Deletion) DeleteSnapshot(ctx context.Context, tag string, o sandbox.DeleteOptions) error {
	_, done, err := d.e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := d.e.catalog.Delete(tag, o); err != nil {
		return err
	}
	d.e.cfg.Deleted()
	return nil
}
