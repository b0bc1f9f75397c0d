package guestfork

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer"
)

// reservation is room in a tree for children that are about to be.
type reservation struct {
	root string
	sandbox.Census
}

// check says whether the tree has room for the children.
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
	committed := sandbox.Committed{Census: now, Forks: g.f.forksLocked(root), LayersMiB: layers.mib}
	if layers.released != g.f.released { // a fork has ended meanwhile, whose layer may not have been counted
		committed.Forks++
	}
	return g.info.Limits.Room(committed, g.req.N, g.info.Shape.VCPUs)
}

// forksLocked counts the forks of a tree that are under way.
func (f *Families) forksLocked(root string) (n int) {
	for _, r := range f.room {
		if r.root == root {
			n++
		}
	}
	return n
}

// treeLayers are what forks of a tree have left of its disks, as of a moment.
type treeLayers struct {
	mib      int
	released chan struct{} // that was current before they were counted
}

// layers counts those of the tree that what runs of it still needs, if it has a budget for them.
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

// reserve takes room in the tree for the children.
func (g *guestForkOp) reserve() (release func(), err error) {
	layers := g.layers()
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if err := g.checkLocked(layers); err != nil {
		return nil, err
	}
	g.f.room[g.req.Token] = reservation{
		g.info.Kin.RootOf(g.info.ID), sandbox.Census{Size: g.req.N, MemoryMiB: g.req.N * g.info.Shape.MemoryMiB},
	}
	return func() {
		g.f.mu.Lock()
		defer g.f.mu.Unlock()
		delete(g.f.room, g.req.Token)
		close(g.f.released)
		g.f.released = make(chan struct{})
	}, nil
}

// censusLocked counts a tree: what runs, and what is about to.
func (f *Families) censusLocked(root string) sandbox.Census {
	var now sandbox.Census
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
