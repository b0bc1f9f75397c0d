package catalog

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
)

// A sandbox outlives the tag of the snapshot that it lies over. What a branch of it needs,
// manifest, state and files, is retired instead of deleted (snapshot.Store.Retire): kept by
// its content hash until the last such sandbox has ended, or lies over another snapshot.

// loadRetired finds what earlier engines retired; the first collection drops what nobody needs.
func (c *Catalog) loadRetired() (map[string]string, error) {
	entries, err := c.snapshots.ListRetired()
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
	c.mu.Lock()
	c.retired[en.ContentHash] = tag // before it loses its tag: one or the other finds it
	c.mu.Unlock()
	return c.snapshots.Retire(tag, en.ContentHash)
}

// needed reports whether a fork from a snapshot is under way, or a sandbox lies over it.
func (c *Catalog) needed(tag, hash string) bool {
	c.mu.Lock()
	forks := c.entryLocked(tag).users > 0
	c.mu.Unlock()
	// After the forks: one that has ended since has listed its sandboxes.
	return forks || c.cfg.Sandboxes.Bases()[hash]
}

// dropRetired removes what no sandbox lies over any more.
func (c *Catalog) dropRetired() {
	unused := c.retiredWithoutForks()
	if len(unused) == 0 {
		return
	}
	bases := c.cfg.Sandboxes.Bases() // after the forks, see needed
	for _, hash := range unused {
		if bases[hash] {
			continue
		}
		if err := c.snapshots.Drop(hash); err != nil {
			c.cfg.Logger.Warn("remove a snapshot that was deleted while in use", "content", hash, "err", err)
			continue // the next collection tries again
		}
		c.mu.Lock()
		delete(c.retired, hash)
		c.mu.Unlock()
	}
}

// retiredWithoutForks are the retired snapshots, by content hash, that no fork uses. What
// is being retired at this moment is not among them.
func (c *Catalog) retiredWithoutForks() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hashes []string
	for hash, tag := range c.retired {
		if e := c.entryLocked(tag); e.users == 0 && e.state != deleting {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

// Left is called when a sandbox has ended, or lies over another snapshot than the one of
// that content hash.
func (c *Catalog) Left(hash string) {
	if c.isRetired(hash) {
		c.CollectLater()
	}
}

func (c *Catalog) isRetired(hash string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, retired := c.retired[hash]
	return retired
}

// retiredManifest is that of a snapshot which has lost its tag; nil if it is gone.
func (c *Catalog) retiredManifest(hash string) *snapshot.Manifest {
	if !c.isRetired(hash) {
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
	if !c.isRetired(hash) {
		return nil, sandbox.StoreError(snapshot.ErrNotFound)
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
	c.mu.Lock()
	e := c.entryLocked(tag)
	_, retired := c.retired[hash]
	c.mu.Unlock()
	if !retired || e.state != deleting {
		return false
	}
	select {
	case <-e.settled:
		return true
	case <-ctx.Done():
		return false
	}
}
