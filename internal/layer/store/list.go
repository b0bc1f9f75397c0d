package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/forkd/forkd/internal/layer"
)

// Entry is a layer of the store.
type Entry struct {
	ID     layer.ID
	Info   layer.Info // empty if Err is not nil
	Sealed bool       // it has digests
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
		en := Entry{ID: id, Sealed: s.Sealed(id)}
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

// Sealed reports whether a layer has digests.
func (s *Store) Sealed(id layer.ID) bool {
	_, err := os.Lstat(s.digestsPath(id))
	return !errors.Is(err, fs.ErrNotExist)
}
