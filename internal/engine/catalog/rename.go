package catalog

import (
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Rename gives a snapshot another tag. Sandboxes and snapshots built on it find it by its content
// hash, which stays. Forks from the old tag wait until it is free.
func Rename(c *Catalog, tag, to string) (sandbox.SnapshotInfo, error) {
	if err := c.tags.rename(tag); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	err := renameClaimed(c, tag, to)
	if moved := c.tags.move(tag, renamed); err == nil {
		err = moved
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := c.Get(to)
	if err != nil {
		return info, err
	}
	about := info.About()
	about[sandbox.EventKeyWas] = tag
	c.cfg.Tell(sandbox.EventSnapshotRenamed, to, about)
	return info, nil
}

func renameClaimed(c *Catalog, tag, to string) error {
	en, err := c.snapshots.Get(tag)
	if err != nil {
		return sandbox.StoreError(err)
	}
	if b := en.Manifest.Branch; b != nil && b.Transient {
		return sandbox.Errorf(sandbox.ErrConflict, "",
			"snapshot %s belongs to a paused sandbox or to a guest's fork, and ends with it: branch the sandbox instead", tag)
	}
	if len(c.snapshots.Absent(en)) > 0 {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady,
			"snapshot %s is still arriving: rename it when all of it is here", tag)
	}
	failed := snapshot.Rename(c.snapshots, tag, to)
	if errors.Is(failed, storeerr.ErrExists) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonTagTaken,
			"snapshot %s: %w: choose another name, or rename or delete that snapshot first", tag, failed)
	}
	if failed != nil {
		if moved, err := c.snapshots.Get(to); err != nil || moved.ContentHash != en.ContentHash {
			return sandbox.StoreError(failed)
		}
		c.cfg.Logger.Warn("remove the old name's pin of a renamed snapshot", "tag", to, "err", failed)
	}
	c.tags.forgetFailed(to)
	c.cfg.Renamed(en.ContentHash, tag, to)
	if !c.snapshots.HasDigests(snapshot.Entry{Tag: to, Manifest: en.Manifest}) {
		c.HashLater(to)
	}
	return nil
}

// TagOf returns the present tag of the snapshot with a content hash, or an empty string.
func TagOf(c *Catalog, hash string) string {
	entries, err := c.snapshots.List()
	if err != nil || hash == "" {
		return ""
	}
	return newLineage(entries).byHash[hash]
}

// Tags returns a function that finds the present tag of a snapshot, or an empty string if none has
// that content.
func Tags(c *Catalog) (func(tag, hash string) string, error) {
	entries, err := c.snapshots.List()
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	tree := newLineage(entries)
	return func(tag, hash string) string {
		en, stored := tree.find(snapshot.Parent{Tag: tag, ContentHash: hash})
		if !stored || hash == "" {
			return ""
		}
		return en.Tag
	}, nil
}
