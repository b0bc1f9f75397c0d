package live

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/blk"
	"github.com/forkd/forkd/internal/vm/vmm"
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
	generation int        // how often it switched to a new overlay file
	frozen     []*os.File // frozen overlay files, which are part of the backing
	retry      func()     // makes the device check its queue; nil until it has one
}

// diskSet holds the machine's disks.
type diskSet struct {
	stall *stall      // receives errors for missing room and lost writes
	warn  func(error) // receives all other errors

	// Set by Boot or Restore, before any vCPU runs.
	all      []vmm.Disk     // in slot order; the machine owns their files
	overlays []*overlayDisk // the disks with an overlay file, in order

	frozenMu sync.Mutex      // guards unsaved
	unsaved  []*overlay.Disk // frozen overlay files with unwritten maps
}

// device creates the device of a disk.
func (s *diskSet) device(i int) (virtio.Device, error) {
	d := s.all[i]
	backend, err := s.open(i, d)
	if err != nil {
		return nil, err
	}
	dev, err := blk.New(blk.Config{Backend: backend, ReadOnly: d.ReadOnly, ID: fmt.Sprintf("forkd-%d", i)})
	if err == nil && d.Overlay != nil {
		s.overlays[len(s.overlays)-1].retry = dev.Kick
	}
	return dev, err
}

func (s *diskSet) open(i int, d vmm.Disk) (blk.Backend, error) {
	if d.Overlay == nil {
		return blk.NewFile(d.File)
	}
	cow, err := overlay.Open(d.Overlay, d.Size, d.Base)
	if err != nil {
		return nil, err
	}
	cow.Reserve(d.Reserve)
	cow.Limit(d.Limit)
	s.overlays = append(s.overlays, &overlayDisk{Disk: cow, index: i})
	return &watchedDisk{Disk: cow, in: s, name: fmt.Sprintf("disk %d", i)}, nil
}

// watchedDisk maps host errors to the machine's behaviour. A write without room waits, and the
// machine with it (stall.go). A lost write is an I/O error for the guest and a health change for
// the daemon. Other errors are reported once on the host, because a guest can cause any number of
// them.
type watchedDisk struct {
	*overlay.Disk
	in   *diskSet
	name string
	said bool
}

// told reports the first error other than missing room and lost writes.
func (d *watchedDisk) told(err error) error {
	if err != nil && !d.said && !errors.Is(err, errors.ErrUnsupported) {
		d.said = true
		d.in.warn(fmt.Errorf("%s: %w", d.name, err))
	}
	return err
}

// kept classifies the error of a write operation.
func (d *watchedDisk) kept(err error) error {
	switch {
	case err == nil:
		return nil
	case d.Broken() != nil:
		d.in.stall.lost(fmt.Errorf("%s: %w", d.name, d.Broken()))
		return err
	case overlay.NoRoom(err):
		d.in.stall.noRoom(fmt.Errorf("%s: %w", d.name, err))
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

// SaveDisks writes each disk with an overlay file of a paused machine in full, each into one of
// files from its current position on. It returns the number of bytes outside holes.
func (m *Machine) SaveDisks(files []*os.File) (total int64, err error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	return m.disks.copyTo(files)
}

func (s *diskSet) copyTo(files []*os.File) (total int64, err error) {
	if len(files) != len(s.overlays) {
		return 0, fmt.Errorf("%d files for %d disks with overlays", len(files), len(s.overlays))
	}
	if err := s.lost(); err != nil {
		return 0, fmt.Errorf("save disk: %w", err)
	}
	for i, d := range s.overlays {
		n, err := d.CopyTo(files[i])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// lost returns the error by which a disk lost a write, if any.
func (s *diskSet) lost() error {
	for _, d := range s.overlays {
		if err := d.Broken(); err != nil {
			return fmt.Errorf("%w: disk %d: %w", vmm.ErrLost, d.index, err)
		}
	}
	return nil
}

// retry makes the devices check their queues, where requests may wait.
func (s *diskSet) retry() {
	for _, d := range s.overlays {
		if d.retry != nil {
			d.retry()
		}
	}
}

// close closes the disks' files. Their devices are closed already.
func (s *diskSet) close() {
	vmm.CloseDisks(s.all)
	for _, d := range s.overlays {
		closeFiles(d.frozen)
	}
}
