package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// A sandbox outlives the tag of the snapshot that it lies over. What a branch of it needs,
// manifest, state and files, is retired instead of deleted (snapshot.Store.Retire): kept by
// its content hash until the last such sandbox has ended, or lies over another snapshot.

// loadRetired finds what earlier engines retired; the first collection drops what nobody needs.
func loadRetired(from *snapshot.Store) (map[string]string, error) {
	entries, err := from.ListRetired()
	if err != nil {
		return nil, err
	}
	retired := map[string]string{}
	for _, en := range entries {
		retired[en.ContentHash] = en.Tag
	}
	return retired, nil
}

// deleteOrRetire deletes a snapshot; of one that sandboxes or forks under way lie over
// only the tag goes. No fork from it begins meanwhile.
func (c *Catalog) deleteOrRetire(tag string) error {
	en, err := c.snapshots.Get(tag)
	if err != nil && !errors.Is(err, snapshot.ErrNotRestorable) {
		return err
	}
	if err != nil || !c.needed(tag, en.ContentHash) {
		return c.snapshots.Delete(tag)
	}
	c.tags.retire(tag, en.ContentHash) // before it loses its tag: one or the other finds it
	return c.snapshots.Retire(tag, en.ContentHash)
}

// needed reports whether a fork from a snapshot is under way, or a sandbox lies over it.
func (c *Catalog) needed(tag, hash string) bool {
	forks := c.tags.get(tag).users > 0
	// After the forks: one that has ended since has listed its sandboxes.
	return forks || c.cfg.Sandboxes.Bases()[hash]
}

// Left is called when a sandbox has ended, or lies over another snapshot than the one of
// that content hash.
func (c *Catalog) Left(hash string) {
	if c.tags.isRetired(hash) {
		c.CollectLater()
	}
}

// retiredManifest is that of a snapshot which has lost its tag; nil if it is gone.
func (c *Catalog) retiredManifest(hash string) *snapshot.Manifest {
	if !c.tags.isRetired(hash) {
		return nil
	}
	en, err := c.snapshots.Retired(hash)
	if err != nil {
		return nil
	}
	return en.Manifest
}

// OpenRetired opens a snapshot that has lost its tag, by its content hash.
func (c *Catalog) OpenRetired(hash string) (*snapshot.Files, error) {
	if !c.tags.isRetired(hash) {
		return nil, sandbox.StoreError(fmt.Errorf("snapshot %w", snapshot.ErrNotFound))
	}
	files, err := c.snapshots.OpenRetired(hash)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	if err := c.RefuseDamaged(files.Manifest); err != nil {
		files.Close()
		return nil, err
	}
	return files, nil
}

// AwaitRetired is for one that has found a snapshot neither by its tag nor by its content
// hash. It waits if the tag is being taken away at this moment, and reports whether to
// look again.
func (c *Catalog) AwaitRetired(ctx context.Context, tag, hash string) bool {
	settled := c.tags.retiring(tag, hash)
	if settled == nil {
		return false
	}
	select {
	case <-settled:
		return true
	case <-ctx.Done():
		return false
	}
}
