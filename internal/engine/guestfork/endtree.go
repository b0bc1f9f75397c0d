package guestfork

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/sandbox"
)

// endsAtOnce is how many sandboxes of a tree are ended at a time.
const endsAtOnce = 8

// Trees are the families as those see them who ask for whole trees.
type Trees struct{ f *Families }

// Trees returns them.
func (f *Families) Trees() *Trees { return &Trees{f} }

// KillTree ends all sandboxes of the tree of forks that one is in, failed ones included. Nothing of the
// tree can fork meanwhile, and children that were about to be are waited for: when it returns without an
// error, nothing is left of the tree. If ctx ends first, the tree may fork again.
func (t *Trees) KillTree(ctx context.Context, id string) error {
	ctx, done, err := t.f.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return t.f.endTree(ctx, id)
}

func (f *Families) endTree(ctx context.Context, id string) error {
	_, info, err := f.cfg.Sandboxes.Find(id)
	if err != nil {
		return err
	}
	root := info.Kin.RootOf(info.ID)
	defer f.stopForks(root)()
	for {
		ids, coming, changed := f.members(root)
		if err := f.endAll(ids); err != nil {
			return err
		}
		switch {
		case len(ids) > 0: // look again: children may have been listed meanwhile
		case !coming:
			return nil
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// stopForks refuses forks in a tree until resume is called as often.
func (f *Families) stopForks(root string) (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending[root]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.ending[root]--; f.ending[root] == 0 {
			delete(f.ending, root)
		}
	}
}

// endingLocked is why a tree may not fork now.
func (f *Families) endingLocked(root string) error {
	if f.ending[root] == 0 {
		return nil
	}
	return forkwire.Errorf(forkwire.Denied, "this sandbox's tree of forks is being ended")
}

// members are a tree's sandboxes, whether more are coming, and what is closed when that has changed.
func (f *Families) members(root string) (ids []string, coming bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.room {
		coming = coming || r.root == root
	}
	for _, i := range f.cfg.Sandboxes.List() { // those that failed and those that are paused, too
		if i.Kin.RootOf(i.ID) == root {
			ids = append(ids, i.ID)
		}
	}
	return ids, coming, f.released
}

// endAll ends sandboxes; those that somebody else has ended are as they should be.
func (f *Families) endAll(ids []string) error {
	var g errgroup.Group
	g.SetLimit(endsAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			if err := f.cfg.Sandboxes.Kill(id); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}
