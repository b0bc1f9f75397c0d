package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	pinFormat   = 1
	maxPinBytes = 1 << 20
	// MaxPinned limits the layers of one pin. It is far longer than any chain, and fits into the record.
	MaxPinned = 16384
)

var pinName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

// record is a pin's file. The file has the pin's name.
type record struct {
	Format int        `json:"format"`
	Layers []layer.ID `json:"layers"`
}

func encodeRecord(ids []layer.ID) ([]byte, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b layer.ID) int { return slices.Compare(a[:], b[:]) })
	if ids = slices.Compact(ids); len(ids) > MaxPinned {
		return nil, fmt.Errorf("%d layers, want at most %d", len(ids), MaxPinned)
	}
	b, err := json.Marshal(record{pinFormat, ids})
	return append(b, '\n'), err
}

func decodeRecord(b []byte) ([]layer.ID, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if r.Format != pinFormat {
		return nil, fmt.Errorf("has format %d, this forkd reads format %d", r.Format, pinFormat)
	}
	if len(r.Layers) > MaxPinned || slices.ContainsFunc(r.Layers, layer.ID.IsZero) {
		return nil, errors.New("names layers that cannot be")
	}
	return r.Layers, nil
}

// Pin keeps layers under a name until Unpin, across restarts. A second Pin with the same name replaces the first.
// All layers must exist.
func (s *Store) Pin(name string, ids ...layer.ID) error {
	if !pinName.MatchString(name) {
		return fmt.Errorf("%w: %.140q", ErrName, name)
	}
	if err := s.pin(name, ids); err != nil {
		return fmt.Errorf("pin layers for %s: %w", name, storeerr.NoSpace(err))
	}
	return nil
}

func (s *Store) pin(name string, ids []layer.ID) error {
	b, err := encodeRecord(ids)
	if err != nil {
		return err
	}
	f, err := s.folder.writeTemp(b)
	if err != nil {
		return err
	}
	defer discard(f)
	unlock, err := s.folder.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, id := range ids { // under the lock, GC cannot remove them any more
		if !s.folder.exists(id) {
			return fmt.Errorf("layer %s: %w", id, ErrNotFound)
		}
	}
	if err := failpoint.At(failpoint.LayerPrefix + "pin.rename"); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.folder.path(pinsDir, name)); err != nil {
		return err
	}
	if err := failpoint.At(failpoint.LayerPrefix + "pin.sync"); err != nil {
		return err
	}
	return durable.SyncDir(s.folder.path(pinsDir))
}

// Unpin removes a pin. Its layers are removed at the next GC unless they are still in use.
func (s *Store) Unpin(name string) error {
	if !pinName.MatchString(name) {
		return fmt.Errorf("%w: %.140q", ErrName, name)
	}
	unlock, err := s.folder.lock()
	if err != nil {
		return fmt.Errorf("unpin %s: %w", name, err)
	}
	defer unlock()
	if err = failpoint.At(failpoint.LayerPrefix + "unpin.remove"); err == nil {
		err = os.Remove(s.folder.path(pinsDir, name))
	}
	if err != nil {
		return notFound("pin "+name, err)
	}
	if err = failpoint.At(failpoint.LayerPrefix + "unpin.sync"); err == nil {
		err = durable.SyncDir(s.folder.path(pinsDir))
	}
	if err != nil {
		return fmt.Errorf("unpin %s: %w", name, err)
	}
	return nil
}

// Pins returns all pins by name. An owner of manifests compares them when it starts, and removes the pins that a
// crash left without a manifest.
func (s *Store) Pins() (map[string][]layer.ID, error) {
	entries, err := os.ReadDir(s.folder.path(pinsDir))
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	pins := map[string][]layer.ID{}
	for _, e := range entries {
		ids, err := s.readPin(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // unpinned meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("%w: pin %s: %w; garbage collection is disabled until it is removed or rewritten",
				ErrDamaged, e.Name(), err)
		}
		pins[e.Name()] = ids
	}
	return pins, nil
}

func (s *Store) readPin(name string) ([]layer.ID, error) {
	if !pinName.MatchString(name) {
		return nil, ErrName
	}
	b, err := durable.ReadFile(s.folder.path(pinsDir, name), maxPinBytes)
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("is a link")
	}
	if err != nil {
		return nil, err
	}
	return decodeRecord(b)
}
