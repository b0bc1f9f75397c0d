package guestfork

import "github.com/forkd/forkd/internal/sandbox"

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
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	return g.checkLocked()
}

func (g *guestForkOp) checkLocked() error {
	root := g.info.Kin.RootOf(g.info.ID)
	if err := g.f.endingLocked(root); err != nil {
		return err
	}
	now := g.f.censusLocked(root)
	return g.f.cfg.Limits.Check(g.info.Kin, now, g.req.N, g.info.Shape.MemoryMiB)
}

// reserve takes room in the tree for the children.
func (g *guestForkOp) reserve() (release func(), err error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if err := g.checkLocked(); err != nil {
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
