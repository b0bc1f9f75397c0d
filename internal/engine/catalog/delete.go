package catalog

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Delete deletes a snapshot without dependants; see sandbox.DeleteOptions for the others. Sandboxes
// running from a deleted snapshot keep running.
func (c *Catalog) Delete(tag string, o sandbox.DeleteOptions) error {
	if o.Cascade && o.Force {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "cascade and force exclude each other")
	}
	if c.tags.forgetFailed(tag) {
		return nil
	}
	if _, err := c.Get(tag); err != nil {
		return err
	}
	entries, err := c.snapshots.List()
	if err != nil {
		return sandbox.StoreError(err)
	}
	victims, err := victimsOf(tag, entries, o)
	if err != nil {
		return err
	}
	if err := claimUnpinned(c, victims, o.Force); err != nil {
		return err
	}
	defer c.CollectLater() // after the last has left its state: snapshots being deleted are skipped
	for i, v := range victims {
		if err := c.deleteClaimed(v.Tag); err != nil {
			c.tags.unclaim(victims[i:])
			return err
		}
	}
	return nil
}

// victimsOf returns the snapshots to delete, leaves first.
func victimsOf(tag string, entries []snapshot.Entry, o sandbox.DeleteOptions) ([]snapshot.Entry, error) {
	tree := newLineage(entries)
	down := tree.descendants(tag)
	if len(down) > 0 && !o.Cascade && !o.Force {
		return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDependentSnapshots,
			"snapshot %s has dependents: %s", tag, atMost(len(down), down))
	}
	tags := []string{tag}
	if o.Cascade {
		tags = append(down, tag)
	}
	out := make([]snapshot.Entry, 0, len(tags))
	for _, t := range tags {
		en := tree.stored[t]
		en.Tag = t // if it was deleted meanwhile, its deletion returns the error
		out = append(out, en)
	}
	return out, nil
}

// deleteClaimed deletes one snapshot and frees its tag.
func (c *Catalog) deleteClaimed(tag string) error {
	info, _ := c.Get(tag)
	about := info.About()
	// An unreadable snapshot cannot be branched from; its mapped files remain.
	if en, err := c.snapshots.Get(tag); err == nil {
		if err := c.cfg.Sandboxes.PinLayers(en); err != nil {
			return sandbox.StoreError(err)
		}
	}
	if err := c.deleteOrRetire(tag); err != nil {
		return sandbox.StoreError(err)
	}
	c.cfg.Deleted(tag)
	c.cfg.Tell(sandbox.EventSnapshotDeleted, tag, about)
	return c.tags.move(tag, removed)
}

// claimUnpinned is claim that refuses pinned snapshots, unless force is set.
func claimUnpinned(c *Catalog, victims []snapshot.Entry, force bool) error {
	c.ruling.Lock()
	defer c.ruling.Unlock()
	for _, v := range victims {
		if info, err := c.Get(v.Tag); err == nil && info.Pinned() && !force {
			return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotPinned, "snapshot %s is pinned", v.Tag)
		}
	}
	return c.claim(victims, force)
}

// claim marks snapshots as being deleted, unless they are in use and force is not set.
//
// It determines the users without the mutex. A fork that begins and ends meanwhile could add a
// sandbox, so claim then checks again.
func (c *Catalog) claim(victims []snapshot.Entry, force bool) error {
	for {
		uses, err := c.claimable(victims, force)
		if err != nil {
			return err
		}
		if claimed, err := c.tags.claimSince(uses, victims, force); claimed || err != nil {
			return err
		}
	}
}

// claimable returns an error if a snapshot is in use, or in a state that forbids its deletion.
func (c *Catalog) claimable(victims []snapshot.Entry, force bool) (uses uint64, err error) {
	uses, entries := c.tags.of(victims)
	for i, v := range victims {
		if _, legal := moves[entries[i].state][remove]; !legal {
			return 0, sandbox.Errorf(sandbox.ErrConflict, "", "snapshot %s is %s", v.Tag, entries[i].state)
		}
		if force {
			continue
		}
		if users := c.usersOf(v, entries[i]); users != "" {
			return 0, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDependentSandboxes,
				"snapshot %s is in use by %s", v.Tag, users)
		}
	}
	return uses, nil
}

// usersOf lists a limited number of users of a snapshot. It returns an empty string if there are no
// users.
func (c *Catalog) usersOf(v snapshot.Entry, e entry) string {
	users := c.cfg.Sandboxes.Using(v.Tag, v.ContentHash)
	const most = 20
	if len(users) > most {
		users = append(slices.Clone(users[:most]), "and more")
	}
	if e.users > 0 {
		users = append(slices.Clone(users), "a fork under way")
	}
	return atMost(len(users), users)
}
