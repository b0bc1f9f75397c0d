package live

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/overlay"
	"github.com/forkd/forkd/internal/virtio"
	"github.com/forkd/forkd/internal/virtio/blk"
	"github.com/forkd/forkd/internal/vmm"
)

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// overlayDisk is a disk with an overlay file.
type overlayDisk struct {
	*overlay.Disk
	index      int        // among the machine's disks
	generation int        // how often it went on in another overlay file
	frozen     []*os.File // overlay files before a switch, which are a part of the backing
	retry      func()     // has the device look at its queue; nil until it has one
}

func (m *Machine) newDisk(i int, d vmm.Disk) (virtio.Device, error) {
	backend, err := m.openDisk(i, d)
	if err != nil {
		return nil, err
	}
	dev, err := blk.New(blk.Config{Backend: backend, ReadOnly: d.ReadOnly, ID: fmt.Sprintf("forkd-%d", i)})
	if err == nil && d.Overlay != nil {
		m.overlays[len(m.overlays)-1].retry = dev.Kick
	}
	return dev, err
}

func (m *Machine) openDisk(i int, d vmm.Disk) (blk.Backend, error) {
	if d.Overlay == nil {
		return blk.NewFile(d.File)
	}
	cow, err := overlay.Open(d.Overlay, d.Size, d.Base)
	if err != nil {
		return nil, err
	}
	cow.Reserve(d.Reserve)
	m.overlays = append(m.overlays, &overlayDisk{Disk: cow, index: i})
	return &watchedDisk{Disk: cow, m: m, name: fmt.Sprintf("disk %d", i)}, nil
}

// watchedDisk decides what an error of the host means to the machine. A write for which
// there is no room waits, and the machine with it (stall.go). One that is lost is the guest's I/O
// error, and everybody else is told. Others are told once on the host, since a guest can cause
// as many as it likes.
type watchedDisk struct {
	*overlay.Disk
	m    *Machine
	name string
	said bool
}

// told is for what is no write.
func (d *watchedDisk) told(err error) error {
	if err != nil && !d.said && !errors.Is(err, errors.ErrUnsupported) {
		d.said = true
		d.m.warn(fmt.Errorf("%s: %w", d.name, err))
	}
	return err
}

// kept is for what changes the disk.
func (d *watchedDisk) kept(err error) error {
	switch {
	case err == nil:
		return nil
	case d.Broken() != nil:
		d.m.diskLost(fmt.Errorf("%s: %w", d.name, d.Broken()))
		return err
	case overlay.NoRoom(err):
		d.m.diskFull(fmt.Errorf("%s: %w", d.name, err))
		return virtio.ErrLater
	}
	return d.told(err)
}

func (d *watchedDisk) Flush() error { return d.kept(d.Disk.Flush()) }
func (d *watchedDisk) ReadVecAt(bufs [][]byte, off int64) error {
	return d.told(d.Disk.ReadVecAt(bufs, off))
}
func (d *watchedDisk) WriteVecAt(bufs [][]byte, off int64) error {
	return d.kept(d.Disk.WriteVecAt(bufs, off))
}
func (d *watchedDisk) Discard(off, n int64) error     { return d.kept(d.Disk.Discard(off, n)) }
func (d *watchedDisk) WriteZeroes(off, n int64) error { return d.kept(d.Disk.WriteZeroes(off, n)) }

// SaveDisks writes each disk of a paused machine that has an overlay file whole into
// one of files, from its present position on. It returns how many bytes were not in holes.
func (m *Machine) SaveDisks(files []*os.File) (total int64, err error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if len(files) != len(m.overlays) {
		return 0, fmt.Errorf("%d files for %d disks with overlays", len(files), len(m.overlays))
	}
	if err := m.lost(); err != nil {
		return 0, fmt.Errorf("save disk: %w", err)
	}
	for i, d := range m.overlays {
		n, err := d.CopyTo(files[i])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
