package vmm

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/cowdisk"
	"github.com/forkd/forkd/internal/vmmctl"
)

// rotate lets a disk go on in an empty own file, which is the machine's then. The
// frozen disk's map is to be saved: until it is, it stands in unsaved, so that a
// capture that fails leaves nothing behind that a later one does not know.
func (m *Machine) rotate(d *cowDisk, own *os.File) error {
	frozen, err := d.Rotate(own)
	if err != nil {
		return err
	}
	d.rotations++
	disk := &m.disks[d.index]
	disk.spent, disk.Own = append(disk.spent, disk.Own), own
	m.frozenMu.Lock()
	defer m.frozenMu.Unlock()
	m.unsaved = append(m.unsaved, frozen)
	return nil
}

// saveMaps writes the maps of all frozen own files that lack one.
func (m *Machine) saveMaps() error {
	m.frozenMu.Lock()
	defer m.frozenMu.Unlock()
	for len(m.unsaved) > 0 {
		if err := m.unsaved[0].SaveMap(); err != nil {
			return err
		}
		m.unsaved = m.unsaved[1:]
	}
	return nil
}

// Rebase puts another base of the same content under each disk with an own file,
// and closes what was there before: after a capture the base grows by an open
// file, which this takes back. The files are the machine's, whatever comes of it.
func (m *Machine) Rebase(bases [][]cowdisk.Extent) error {
	err := m.rebase(bases)
	if err != nil {
		for _, b := range bases {
			Disk{Base: b}.Close()
		}
	}
	return err
}

func (m *Machine) rebase(bases [][]cowdisk.Extent) error {
	if err := m.lockIn(vmmctl.StateRunning, vmmctl.StatePaused); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if len(bases) != len(m.cow) {
		return fmt.Errorf("rebase: %d bases for %d disks with own blocks", len(bases), len(m.cow))
	}
	m.frozenMu.Lock()
	unsaved := len(m.unsaved)
	m.frozenMu.Unlock()
	if unsaved > 0 {
		return errors.New("rebase: a capture has left maps that are not written")
	}
	for i, d := range m.cow {
		if err := d.Check(bases[i]); err != nil { // of all, before any is changed
			return err
		}
	}
	for i, d := range m.cow {
		if err := d.Rebase(bases[i]); err != nil {
			return err
		}
		disk := &m.disks[d.index]
		disk.closeBut(disk.Own)
		disk.Base, disk.spent = bases[i], nil
	}
	return nil
}

// rotations is how often each disk with an own file went on in another one.
func (m *Machine) rotations() []int {
	var n []int
	for _, d := range m.cow {
		n = append(n, d.rotations)
	}
	return n
}
