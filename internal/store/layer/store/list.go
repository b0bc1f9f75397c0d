package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Entry is a layer of the store.
type Entry struct {
	ID     layer.ID
	Info   layer.Info // empty if Err is not nil
	Hashed bool       // it has digests
	Err    error      // why it cannot be used
}

// List lists the layers in the order of their IDs.
func (s *Store) List() ([]Entry, error) {
	entries, err := os.ReadDir(s.path(layersDir))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	var out []Entry
	for _, e := range entries {
		id, err := layer.ParseID(e.Name())
		if err != nil {
			continue // digests, or nothing of ours
		}
		en := Entry{ID: id, Hashed: s.Hashed(id)}
		h, err := s.Get(id)
		switch {
		case errors.Is(err, ErrNotFound):
			continue // removed meanwhile
		case err != nil:
			en.Err = err
		default:
			en.Info = h.Info
			h.Close()
		}
		out = append(out, en)
	}
	return out, nil
}

// Probe looks whether the layer is in the store and as long as it says itself. It
// reads no more than a header, for those who list many.
func (s *Store) Probe(id layer.ID) (layer.Info, error) {
	f, err := durable.Open(s.layerPath(id))
	if err != nil {
		return layer.Info{}, notFound("layer "+id.String(), err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return layer.Info{}, err
	}
	info, err := layer.Probe(f, st.Size())
	if err == nil && info.ID != id {
		err = fmt.Errorf("%w: it holds layer %s", layer.ErrDamaged, info.ID)
	}
	return info, err
}

// Bytes is what the layer takes on the disk, its digests not counted.
func (s *Store) Bytes(id layer.ID) (int64, error) {
	st, err := os.Lstat(s.layerPath(id))
	if err != nil {
		return 0, notFound("layer "+id.String(), err)
	}
	return blocksOf(st), nil
}

// Path is the layer's file, for those who look at it from outside.
func (s *Store) Path(id layer.ID) string { return s.layerPath(id) }

// Scratch makes a file without a name in the store, for what is on its way to
// become a layer. The caller closes it, and it is gone.
func (s *Store) Scratch() (*os.File, error) {
	if err := s.room(0); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := s.tempFileLocked()
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("make scratch file: %w", layer.NoSpace(err))
	}
	return f, nil
}

// Hashed reports whether a layer has digests.
func (s *Store) Hashed(id layer.ID) bool {
	_, err := os.Lstat(s.digestsPath(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// IDs are the layers' in the store. Nothing is opened.
func (s *Store) IDs() ([]layer.ID, error) {
	entries, err := os.ReadDir(s.path(layersDir))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	var ids []layer.ID
	for _, e := range entries {
		if id, err := layer.ParseID(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
