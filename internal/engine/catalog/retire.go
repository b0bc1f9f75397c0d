package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// A sandbox outlives the tag of its base snapshot. The parts needed to branch it, manifest, state
// and files, are retired instead of deleted (snapshot.Store.Retire): they are kept by their content
// hash until the last such sandbox has ended or has another base.

// loadRetired finds the snapshots retired by earlier engines. The first collection drops the unused
// ones.
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

// deleteOrRetire deletes a snapshot. If running forks or sandboxes are based on it, only the tag is
// removed. No fork from it begins meanwhile.
func (c *Catalog) deleteOrRetire(tag string) error {
	en, err := c.snapshots.Get(tag)
	if err != nil && !errors.Is(err, storeerr.ErrNotRestorable) {
		return err
	}
	if err != nil || !c.needed(tag, en.ContentHash) {
		return c.snapshots.Delete(tag)
	}
	c.tags.retire(tag, en.ContentHash) // before the tag goes: a lookup must always find it
	return c.snapshots.Retire(tag, en.ContentHash)
}

// needed reports whether a fork from a snapshot is running, or a sandbox is based on it.
func (c *Catalog) needed(tag, hash string) bool {
	forks := c.tags.get(tag).users > 0
	// After the forks: a fork that has ended since has listed its sandboxes.
	return forks || c.cfg.Sandboxes.Bases()[hash]
}

// Left is called when a sandbox has ended, or no longer has the snapshot of that content hash as
// its base.
func (c *Catalog) Left(hash string) {
	if c.tags.isRetired(hash) {
		c.CollectLater()
	}
}

// retiredManifest returns the manifest of a retired snapshot, or nil if it is gone.
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

// OpenRetired opens a retired snapshot by its content hash.
func (c *Catalog) OpenRetired(hash string) (*snapshot.Files, error) {
	if !c.tags.isRetired(hash) {
		return nil, sandbox.StoreError(fmt.Errorf("snapshot %w", storeerr.ErrNotFound))
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

// AwaitRetired is called if a snapshot was found neither by its tag nor by its content hash. If the
// tag is just being removed, it waits for this. It reports whether the caller should look again.
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
