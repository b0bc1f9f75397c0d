package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/durable"
	"github.com/forkd/forkd/internal/layer"
)

// Handle is an open use of a layer, which reads through it until it is closed.
// The layer is kept longer than that: as long as any process has the handle's
// file open or mapped, by having been given its descriptor. That keeps what a VM
// sees; what a branch of it needs, whole chains, is for a hold to keep.
type Handle struct {
	*layer.Layer
	s      *Store
	shared *shared
}

// shared is the one open file behind all handles of a layer in this process.
type shared struct {
	layer *layer.Layer
	file  *os.File
	users int // guarded by Store.mu
}

// Get opens a layer and checks its header and index.
func (s *Store) Get(id layer.ID) (*Handle, error) {
	if sh := s.use(id, nil); sh != nil {
		return &Handle{Layer: sh.layer, s: s, shared: sh}, nil
	}
	mine, err := s.openShared(id) // without mu: others need not wait for this disk access
	if err != nil {
		return nil, notFound("layer "+id.String(), err)
	}
	sh := s.use(id, mine)
	if sh != mine {
		mine.file.Close() // somebody else was sooner
	}
	return &Handle{Layer: sh.layer, s: s, shared: sh}, nil
}

// use adds a user to the layer's open file; to fresh, if there is none yet.
func (s *Store) use(id layer.ID, fresh *shared) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] == nil {
		if fresh == nil {
			return nil
		}
		s.open[id] = fresh
	}
	s.open[id].users++
	return s.open[id]
}

// Close ends the use. A second call does nothing. Not to be called by two
// goroutines at once.
func (h *Handle) Close() error {
	if h.shared == nil {
		return nil
	}
	sh := h.shared
	h.shared = nil
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if sh.users--; sh.users > 0 {
		return nil
	}
	delete(h.s.open, sh.layer.ID)
	return sh.file.Close()
}

func (s *Store) openShared(id layer.ID) (_ *shared, err error) {
	path := s.layerPath(id)
	f, err := durable.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// The lock is what GC looks at. It belongs to the open file and not to the
	// process, so it goes wherever the descriptor goes, into mappings too.
	if err := flock(f, unix.LOCK_SH); err != nil {
		return nil, err
	}
	if err := stillNamed(f, path); err != nil {
		return nil, err
	}
	l, err := layer.Open(f)
	if err != nil {
		return nil, err
	}
	if l.ID != id {
		return nil, fmt.Errorf("%w: file %s holds layer %s", layer.ErrDamaged, id, l.ID)
	}
	return &shared{layer: l, file: f}, nil
}

// stillNamed finds out whether GC took the name away before the lock was ours.
func stillNamed(f *os.File, path string) error {
	now, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err == nil && !os.SameFile(now, mine) {
		err = errors.New("it was replaced while it was opened; layers must not be")
	}
	return err
}

// Chain is an image and the handles of its layers.
type Chain struct {
	*layer.Image
	handles []*Handle
}

// Chain opens layers, base first, and assembles them.
func (s *Store) Chain(ids ...layer.ID) (*Chain, error) {
	c := &Chain{}
	layers := make([]*layer.Layer, 0, len(ids))
	for _, id := range ids {
		h, err := s.Get(id)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.handles = append(c.handles, h)
		layers = append(layers, h.Layer)
	}
	image, err := layer.Assemble(layers)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.Image = image
	return c, nil
}

// Close ends the use of all layers. A second call does nothing.
func (c *Chain) Close() error {
	var errs []error
	for _, h := range c.handles {
		errs = append(errs, h.Close())
	}
	c.handles = nil
	return errors.Join(errs...)
}
