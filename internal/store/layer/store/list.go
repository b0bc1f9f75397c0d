package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Entry is a layer of the store.
type Entry struct {
	ID     layer.ID
	Info   layer.Info // unset if Err is not nil
	Hashed bool       // it has digests
	Err    error      // why it cannot be used
}

// List returns the layers sorted by ID.
func (s *Store) List() ([]Entry, error) {
	entries, err := os.ReadDir(s.folder.path(layersDir))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	var out []Entry
	for _, e := range entries {
		id, err := layer.ParseID(e.Name())
		if err != nil {
			continue // digests, or another file
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

// Probe checks that the layer exists and has the size given in its header. It only reads the header, for callers
// that list many layers.
func (s *Store) Probe(id layer.ID) (layer.Info, error) {
	f, err := durable.Open(s.folder.layerPath(id))
	if errors.Is(err, fs.ErrNotExist) { // its header came first
		f, err = durable.Open(filepath.Join(s.folder.lazyPath(id), layer.PartialData))
	}
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

// Bytes returns the layer's size on disk, without its digests.
func (s *Store) Bytes(id layer.ID) (int64, error) {
	st, err := os.Lstat(s.folder.layerPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		st, err = os.Lstat(filepath.Join(s.folder.lazyPath(id), layer.PartialData))
	}
	if err != nil {
		return 0, notFound("layer "+id.String(), err)
	}
	return blocksOf(st), nil
}

// Path returns the path of the layer's file, for tools outside the store.
func (s *Store) Path(id layer.ID) string { return s.folder.layerPath(id) }

// Scratch creates an unnamed file in the store, for data that is to become a layer. It disappears when the caller
// closes it.
func (s *Store) Scratch() (*os.File, error) {
	if err := s.folder.room(0); err != nil {
		return nil, err
	}
	unlock, err := s.folder.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := s.folder.tempFileLocked()
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("make scratch file: %w", storeerr.NoSpace(err))
	}
	return f, nil
}

// Hashed reports whether a layer has digests.
func (s *Store) Hashed(id layer.ID) bool {
	_, err := os.Lstat(s.folder.digestsPath(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// IDs returns the IDs of the layers in the store. It opens no files.
func (s *Store) IDs() ([]layer.ID, error) {
	entries, err := os.ReadDir(s.folder.path(layersDir))
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
