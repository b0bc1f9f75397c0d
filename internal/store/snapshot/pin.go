package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/store/layer/store"
)

// pinPrefix begins the name of a snapshot's pin on its layers; its tag follows.
const pinPrefix = "snapshot."

// pin keeps what a manifest names.
func (s *Store) pin(tag string, m *Manifest) error {
	return s.layers.Pin(pinPrefix+tag, m.LayerIDs()...)
}

// unpin lets go of a snapshot's layers. A copy that was made by hand may have held none.
func (s *Store) unpin(tag string) error {
	if err := s.layers.Unpin(pinPrefix + tag); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete snapshot %s: %w", tag, err)
	}
	return nil
}

// settlePins brings pins and snapshots together: one of a snapshot that was
// never whole, or is gone, is released, and a snapshot that was copied here by
// hand gets one. What a manifest that cannot be read needs is left as it is.
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
