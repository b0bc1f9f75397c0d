package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/layer"
)

// Handle is an open layer, readable until it is closed. It keeps the layer only while this process has it open. A
// VM that has the file open or mapped can read its content even after the name is gone. To keep the layer longer,
// for a branch or the next daemon, use a pin.
type Handle struct {
	*layer.Layer
	s      *Store
	shared *shared
}

// shared is the one open file for all handles of a layer in this process.
type shared struct {
	layer *layer.Layer
	file  *os.File
	use   *os.File // keeps GC away from the layer
	users int      // guarded by Store.mu
}

func (sh *shared) close() error { return errors.Join(sh.file.Close(), sh.use.Close()) }

// Get opens a layer and checks its header and index.
func (s *Store) Get(id layer.ID) (*Handle, error) {
	if sh := s.use(id, nil); sh != nil {
		return &Handle{Layer: sh.layer, s: s, shared: sh}, nil
	}
	mine, err := s.openShared(id) // without mu, so that other calls need not wait for the disk
	if err != nil {
		return nil, notFound("layer "+id.String(), err)
	}
	sh := s.use(id, mine)
	if sh != mine {
		mine.close() // another goroutine was faster
	}
	return &Handle{Layer: sh.layer, s: s, shared: sh}, nil
}

// use adds a user to the layer's open file. If there is no open file, it uses fresh.
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

// Close closes the handle. A second call does nothing. Two goroutines must not call it concurrently.
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
	return sh.close()
}

func (s *Store) openShared(id layer.ID) (_ *shared, err error) {
	// Begin the use before opening: GC checks this lock, so the name stays valid.
	use, err := s.folder.beginUse(id)
	if err != nil {
		return nil, err
	}
	f, err := s.folder.openFile(id)
	if err != nil {
		use.Close()
		return nil, err
	}
	sh := &shared{file: f, use: use}
	if sh.layer, err = layer.Open(f); err == nil && sh.layer.ID != id {
		err = fmt.Errorf("%w: file %s holds layer %s", layer.ErrDamaged, id, sh.layer.ID)
	}
	if err != nil {
		sh.close()
		return nil, err
	}
	return sh, nil
}

// Chain is an image with the handles of its layers.
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

// Close closes all layers. A second call does nothing.
func (c *Chain) Close() error {
	var errs []error
	for _, h := range c.handles {
		errs = append(errs, h.Close())
	}
	c.handles = nil
	return errors.Join(errs...)
}
