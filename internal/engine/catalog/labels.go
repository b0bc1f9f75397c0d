package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// SetLabels changes the labels of a snapshot. It refuses one that is being written or has failed.
func (c *Catalog) SetLabels(tag string, change labels.Change) (sandbox.SnapshotInfo, error) {
	c.ruling.Lock()
	defer c.ruling.Unlock()
	if e := c.tags.get(tag); e.state != idle {
		return sandbox.SnapshotInfo{}, e.refusal(tag)
	}
	err := c.snapshots.SetLabels(tag, func(set map[string]string) (map[string]string, error) {
		return sandbox.ChangeLabels(set, change)
	})
	if err != nil {
		return sandbox.SnapshotInfo{}, sandbox.StoreError(err)
	}
	return c.Get(tag)
}

// Labels returns the labels of a snapshot, or nil if it is gone.
func (c *Catalog) Labels(tag string) map[string]string {
	en, err := c.snapshots.Get(tag)
	if err != nil {
		return nil
	}
	return en.Labels
}
