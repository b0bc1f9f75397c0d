package store

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
)

// Receive stores a layer that was written elsewhere. fill writes the whole file of size bytes, verified, and may
// leave holes. The layer gets its name after its header and index were checked. Until a pin names it, only the
// returned handle keeps it. If the store has a layer of this ID, the error wraps fs.ErrExist.
func (s *Store) Receive(id layer.ID, size int64, fill func(*os.File) error) (*Handle, error) {
	h, err := s.receive(id, size, fill)
	if err != nil {
		return nil, fmt.Errorf("receive layer %s: %w", id, storeerr.NoSpace(err))
	}
	return h, nil
}

func (s *Store) receive(id layer.ID, size int64, fill func(*os.File) error) (*Handle, error) {
	if err := s.folder.room(0); err != nil { // its size is not known: it may have holes
		return nil, err
	}
	unlock, err := s.folder.lock()
	if err != nil {
		return nil, err
	}
	f, err := s.folder.tempFileLocked()
	unlock()
	if err != nil {
		return nil, err
	}
	d := &Draft{s: s, file: f}
	defer d.Discard()
	if err := fill(f); err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	l, err := layer.Open(f)
	if err != nil {
		return nil, err
	}
	if l.ID != id {
		return nil, fmt.Errorf("%w: it holds layer %s", layer.ErrDamaged, l.ID)
	}
	if err := s.before(layer.StepSync, 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if unlock, err = s.folder.lock(); err != nil {
		return nil, err
	}
	defer unlock()
	return d.publishLocked(id)
}

// Room returns an error if writing these bytes would use the reserve.
func (s *Store) Room(bytes int64) error { return s.folder.room(bytes) }

// Digests returns the digests of a layer. If it has no digests yet, the error wraps ErrNotFound.
func (s *Store) Digests(id layer.ID) (*layer.Digests, error) {
	h, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	d, err := s.digests(h.Info)
	if err != nil {
		return nil, notFound("digests of layer "+id.String(), err)
	}
	return d, nil
}
