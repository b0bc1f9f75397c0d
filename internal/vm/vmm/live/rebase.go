package live

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// switchOverlay makes a disk continue in an empty overlay file, which the machine then owns. The
// frozen disk stays in unsaved until its map is saved: a later capture needs the map after a failed
// one.
func (s *diskSet) switchOverlay(d *overlayDisk, own *os.File) error {
	frozen, err := d.SwitchOverlay(own)
	if err != nil {
		return err
	}
	d.generation++
	disk := &s.all[d.index]
	d.frozen, disk.Overlay = append(d.frozen, disk.Overlay), own
	s.frozenMu.Lock()
	defer s.frozenMu.Unlock()
	s.unsaved = append(s.unsaved, frozen)
	return nil
}

// saveMaps writes the missing maps of all frozen overlay files.
func (s *diskSet) saveMaps() error {
	s.frozenMu.Lock()
	defer s.frozenMu.Unlock()
	for len(s.unsaved) > 0 {
		if err := s.unsaved[0].SaveMap(); err != nil {
			return err
		}
		s.unsaved = s.unsaved[1:]
	}
	return nil
}

// Rebase puts another base of the same content under each disk with an overlay file, and closes the
// previous base. A capture adds an open file to the base, and Rebase removes it. The machine owns
// the files, also after an error.
func (m *Machine) Rebase(bases [][]extent.Extent) error {
	err := m.rebase(bases)
	if err != nil {
		closeBases(bases)
	}
	return err
}

func closeBases(bases [][]extent.Extent) {
	for _, b := range bases {
		vmm.CloseExtents(b)
	}
}

func (m *Machine) rebase(bases [][]extent.Extent) error {
	if err := m.lockIn(vmm.StateRunning, vmm.StatePaused, vmm.StateStalled); err != nil {
		return err
	}
	defer m.mu.Unlock()
	return m.disks.rebase(bases)
}

func (s *diskSet) rebase(bases [][]extent.Extent) error {
	if len(bases) != len(s.overlays) {
		return fmt.Errorf("rebase: %d bases for %d disks with overlays", len(bases), len(s.overlays))
	}
	s.frozenMu.Lock()
	unsaved := len(s.unsaved)
	s.frozenMu.Unlock()
	if unsaved > 0 {
		return errors.New("rebase: a capture has left maps that are not written")
	}
	for i, d := range s.overlays {
		if err := d.Check(bases[i]); err != nil { // check all before changing any
			return err
		}
	}
	for i, d := range s.overlays {
		if err := d.Rebase(bases[i]); err != nil {
			return err
		}
		disk := &s.all[d.index]
		vmm.CloseExtents(disk.Base)
		closeFiles(d.frozen)
		disk.Base, d.frozen = bases[i], nil
	}
	return nil
}

// generations counts, for each disk with an overlay file, how often it switched to a new one.
func (s *diskSet) generations() []int {
	var n []int
	for _, d := range s.overlays {
		n = append(n, d.generation)
	}
	return n
}
