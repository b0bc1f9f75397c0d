package catalog

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Delete deletes a snapshot that nothing depends on; see sandbox.DeleteOptions for the others.
// Sandboxes that run from a deleted one live on.
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
	if err := c.claim(victims, o.Force); err != nil {
		return err
	}
	defer c.CollectLater() // after the last has left its state: what is being deleted is not looked at
	for i, v := range victims {
		if err := c.deleteClaimed(v.Tag); err != nil {
			c.tags.unclaim(victims[i:])
			return err
		}
	}
	return nil
}

// victimsOf are the snapshots that a deletion takes, leaves first.
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
		en.Tag = t // it may have been deleted meanwhile; then that is the error
		out = append(out, en)
	}
	return out, nil
}

// deleteClaimed deletes one snapshot and frees its tag.
func (c *Catalog) deleteClaimed(tag string) error {
	info, _ := c.Get(tag)
	about := info.About()
	// One that cannot be read has nothing to be branched from; what is mapped of it stays.
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

// claim marks snapshots as being deleted if nobody uses them, or in spite of it.
//
// Who runs from them is asked without the mutex. A fork that begins and ends meanwhile
// could make another sandbox, so then they are asked again.
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

// claimable is an error if a snapshot is in a state that forbids its deletion, or in use.
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

// usersOf names at most a few users of a snapshot; empty: there are none.
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
