package guestfork

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// endsAtOnce is the number of sandboxes of a tree ended concurrently.
const endsAtOnce = 8

// Trees provides the operations on whole trees.
type Trees struct{ f *Families }

// Trees returns the operations on whole trees.
func (f *Families) Trees() *Trees { return &Trees{f} }

// KillTree ends all sandboxes of a sandbox's fork tree, including failed ones. The tree cannot fork
// meanwhile, and KillTree waits for children being made. When it returns without an error, the
// whole tree is gone. If ctx ends first, the tree may fork again. It returns the sandboxes it has
// ended.
func (t *Trees) KillTree(ctx context.Context, id string) (ended []string, err error) {
	ctx, done, err := t.f.cfg.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return t.f.endTree(ctx, id)
}

func (f *Families) endTree(ctx context.Context, id string) (ended []string, err error) {
	_, info, err := f.cfg.Sandboxes.Find(id)
	if err != nil {
		return nil, err
	}
	root := info.Kin.RootOf(info.ID)
	defer f.stopForks(root)()
	for {
		ids, coming, changed := f.members(root)
		gone, err := f.endAll(ids)
		ended = append(ended, gone...)
		if err != nil {
			return ended, err
		}
		switch {
		case len(ids) > 0: // look again: children may have been listed meanwhile
		case !coming:
			return ended, nil
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return ended, context.Cause(ctx)
			}
		}
	}
}

// stopForks refuses forks in a tree until resume is called as many times as stopForks.
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

// endingLocked returns an error if a tree must not fork now.
func (f *Families) endingLocked(root string) error {
	if f.ending[root] == 0 {
		return nil
	}
	return forkwire.Errorf(forkwire.Denied, "this sandbox's tree of forks is being ended")
}

// members returns a tree's sandboxes and whether more are being made. changed is closed when that
// has changed.
func (f *Families) members(root string) (ids []string, coming bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.room {
		coming = coming || r.root == root
	}
	for _, i := range f.cfg.Sandboxes.List() { // including failed and paused ones
		if i.Kin.RootOf(i.ID) == root {
			ids = append(ids, i.ID)
		}
	}
	return ids, coming, f.released
}

// endAll ends sandboxes and returns their ids. It ignores sandboxes that were ended by others.
func (f *Families) endAll(ids []string) (ended []string, err error) {
	var g errgroup.Group
	var mu sync.Mutex // guards ended
	g.SetLimit(endsAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			err := f.cfg.Sandboxes.Kill(id)
			if errors.Is(err, sandbox.ErrNotFound) {
				return nil
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, id)
			}
			return err
		})
	}
	err = g.Wait()
	slices.Sort(ended)
	return ended, err
}
