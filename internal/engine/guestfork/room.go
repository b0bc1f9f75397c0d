package guestfork

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer"
)

// reservation is space in a tree for children being made.
type reservation struct {
	root string
	sandbox.TreeUsage
}

// check returns an error if the tree has no space for the children.
func (g *guestForkOp) check() error {
	if err := g.family.Full(); err != nil {
		return err
	}
	layers := g.layers()
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	return g.checkLocked(layers)
}

func (g *guestForkOp) checkLocked(layers treeLayers) error {
	root := g.info.Kin.RootOf(g.info.ID)
	if err := g.f.endingLocked(root); err != nil {
		return err
	}
	now := g.f.censusLocked(root)
	if err := g.f.cfg.Limits.Check(g.info.Kin, now, g.req.N, g.info.Shape.MemoryMiB); err != nil {
		return err
	}
	committed := sandbox.Committed{TreeUsage: now, Forks: g.f.forksLocked(root), LayersMiB: layers.mib}
	if layers.released != g.f.released { // a fork has ended meanwhile; its layer may not have been counted
		committed.Forks++
	}
	return g.info.Limits.Room(committed, g.req.N, g.info.Shape.VCPUs)
}

// forksLocked counts the running forks of a tree.
func (f *Families) forksLocked(root string) (n int) {
	for _, r := range f.room {
		if r.root == root {
			n++
		}
	}
	return n
}

// treeLayers is the size of the disk layers left by a tree's forks, at one moment.
type treeLayers struct {
	mib      int
	released chan struct{} // channel that was current before the count
}

// layers counts the layers still used by the tree's sandboxes, if the tree has a disk budget.
func (g *guestForkOp) layers() (l treeLayers) {
	g.f.mu.Lock()
	l.released = g.f.released
	g.f.mu.Unlock()
	if g.info.Limits.Tree.DiskMiB == 0 {
		return l
	}
	seen, sum := map[layer.ID]bool{}, int64(0)
	for _, s := range g.f.cfg.Sandboxes.All() {
		i := s.Info()
		if i.Kin.RootOf(i.ID) != g.info.Kin.RootOf(g.info.ID) {
			continue
		}
		for _, d := range s.Disks().List() {
			for _, id := range d.Backing[min(i.Kin.Base, len(d.Backing)):] {
				if n, err := g.f.cfg.LayerBytes(id); err == nil && !seen[id] {
					sum += n
				}
				seen[id] = true
			}
		}
	}
	l.mib = int((sum + 1<<20 - 1) >> 20)
	return l
}

// reserve reserves space in the tree for the children.
func (g *guestForkOp) reserve() (release func(), err error) {
	layers := g.layers()
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if err := g.checkLocked(layers); err != nil {
		return nil, err
	}
	g.f.room[g.req.Token] = reservation{
		g.info.Kin.RootOf(g.info.ID), sandbox.TreeUsage{Size: g.req.N, MemoryMiB: g.req.N * g.info.Shape.MemoryMiB},
	}
	return func() {
		g.f.mu.Lock()
		defer g.f.mu.Unlock()
		delete(g.f.room, g.req.Token)
		close(g.f.released)
		g.f.released = make(chan struct{})
	}, nil
}

// censusLocked counts a tree's running sandboxes and the ones being made.
func (f *Families) censusLocked(root string) sandbox.TreeUsage {
	var now sandbox.TreeUsage
	for _, r := range f.room {
		if r.root == root {
			now.Size += r.Size
			now.MemoryMiB += r.MemoryMiB
		}
	}
	f.cfg.Sandboxes.Each(func(i sandbox.Info) {
		_, reserved := f.room[i.Kin.Token] // then it is counted above
		if i.Kin.RootOf(i.ID) == root && !reserved {
			now.Size++
			now.MemoryMiB += i.Shape.MemoryMiB
		}
	})
	return now
}
