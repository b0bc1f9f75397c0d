package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// pinPrefix begins the name of a snapshot's pin; the tag follows.
const pinPrefix = "snapshot."

// pin pins the layers in a manifest.
func (s *Store) pin(tag string, m *Manifest) error {
	return s.layers.Pin(pinPrefix+tag, m.LayerIDs()...)
}

// unpin removes the pin on a snapshot's layers. A copy made by hand may have no pin.
func (s *Store) unpin(tag string) error {
	if err := s.layers.Unpin(pinPrefix + tag); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete snapshot %s: %w", tag, err)
	}
	return nil
}

// settlePins reconciles pins and snapshots. It removes the pin of a snapshot that was never complete or is
// deleted, and pins the layers of a snapshot that was copied here by hand. It keeps the pin of an unreadable
// manifest.
func (s *Store) settlePins() error {
	pins, err := s.layers.Pins()
	if err != nil {
		return err
	}
	for name := range pins {
		tag, ours := strings.CutPrefix(name, pinPrefix)
		if !ours {
			continue
		}
		if _, err := os.Lstat(s.Dir(tag)); os.IsNotExist(err) {
			if err := s.unpin(tag); err != nil {
				return err
			}
		}
	}
	if err := s.settleRetired(slices.Collect(maps.Keys(pins))); err != nil {
		return err
	}
	entries, err := s.List()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Err != nil {
			continue
		}
		held := pins[pinPrefix+e.Tag]
		for _, id := range e.Manifest.LayerIDs() {
			if !slices.Contains(held, id) {
				if err := s.pin(e.Tag, e.Manifest); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// Freed returns the bytes of the disk that the removal of snapshots frees, by tag. A layer of several of them counts
// at the first one, and a layer with another pin does not count.
func Freed(s *Store, tags []string) (map[string]int64, error) {
	pins, err := s.layers.Pins()
	if err != nil {
		return nil, err
	}
	shared := map[layer.ID]bool{}
	for name, ids := range pins {
		if tag, ours := strings.CutPrefix(name, pinPrefix); ours && slices.Contains(tags, tag) {
			continue
		}
		for _, id := range ids {
			shared[id] = true
		}
	}
	freed := make(map[string]int64, len(tags))
	for _, tag := range tags {
		en, err := s.Get(tag)
		if err == nil {
			for _, f := range en.Manifest.Files {
				freed[tag] += f.Bytes
			}
		}
		for _, id := range pins[pinPrefix+tag] {
			if shared[id] {
				continue
			}
			shared[id] = true
			if n, err := s.layers.Bytes(id); err == nil { // otherwise it is gone
				freed[tag] += n
			}
		}
	}
	return freed, nil
}
