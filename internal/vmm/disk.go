package vmm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/cowdisk"
	"github.com/forkd/forkd/internal/virtio"
	"github.com/forkd/forkd/internal/virtio/blk"
	"github.com/forkd/forkd/internal/vmmctl"
)

// Disk is the backing of a block device: a plain file, or, with Own, a disk of
// Size bytes whose content is Base but for the blocks in Own.
type Disk struct {
	File     *os.File
	ReadOnly bool

	Own  *os.File
	Size int64
	Base []cowdisk.Extent

	spent []*os.File // own files before a rotation, which are a part of the base
}

// Close closes all files of a disk; those that several extents name once.
func (d Disk) Close() { d.closeBut(nil) }

// closeBut closes all files of a disk but one.
func (d Disk) closeBut(keep *os.File) {
	closed := map[*os.File]bool{nil: true, keep: true}
	files := append([]*os.File{d.File, d.Own}, d.spent...)
	for _, e := range d.Base {
		files = append(files, e.File)
	}
	for _, f := range files {
		if !closed[f] {
			closed[f] = true
			f.Close()
		}
	}
}

// cowDisk is a disk with an own file.
type cowDisk struct {
	*cowdisk.Disk
	index     int // among the machine's disks
	rotations int
}

func (m *Machine) newDisk(i int, d Disk) (virtio.Device, error) {
	backend, err := m.openDisk(i, d)
	if err != nil {
		return nil, err
	}
	return blk.New(blk.Config{Backend: backend, ReadOnly: d.ReadOnly, ID: fmt.Sprintf("forkd-%d", i)})
}

func (m *Machine) openDisk(i int, d Disk) (blk.Backend, error) {
	if d.Own == nil {
		return blk.NewFile(d.File)
	}
	cow, err := cowdisk.Open(d.Own, d.Size, d.Base)
	if err != nil {
		return nil, err
	}
	m.cow = append(m.cow, &cowDisk{Disk: cow, index: i})
	return &loudDisk{Disk: cow, warn: func(err error) { m.warn(fmt.Errorf("disk %d: %w", i, err)) }}, nil
}

// loudDisk says on the host what the guest only knows as an I/O error; once,
// since a guest can cause as many errors as it likes.
type loudDisk struct {
	*cowdisk.Disk
	warn func(error)
	said bool
}

func (d *loudDisk) tell(err error) error {
	if err == nil || d.said {
		return err
	}
	d.said = true
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		d.warn(fmt.Errorf("%w; make room on the host's file system: until then the guest's writes fail", err))
	} else {
		d.warn(err)
	}
	return err
}

func (d *loudDisk) Flush() error { return d.tell(d.Disk.Flush()) }
func (d *loudDisk) ReadVecAt(bufs [][]byte, off int64) error {
	return d.tell(d.Disk.ReadVecAt(bufs, off))
}
func (d *loudDisk) WriteVecAt(bufs [][]byte, off int64) error {
	return d.tell(d.Disk.WriteVecAt(bufs, off))
}
func (d *loudDisk) Discard(off, n int64) error { return d.tell(d.Disk.Discard(off, n)) }
func (d *loudDisk) WriteZeroes(off, n int64, unmap bool) error {
	return d.tell(d.Disk.WriteZeroes(off, n, unmap))
}

// SaveDisks writes each disk of a paused machine that has an own file whole into
// one of files, from its present position on. It returns how many bytes were not in holes.
func (m *Machine) SaveDisks(files []*os.File) (total int64, err error) {
	if err := m.lockIn(vmmctl.StatePaused); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if len(files) != len(m.cow) {
		return 0, fmt.Errorf("%d files for %d disks with own blocks", len(files), len(m.cow))
	}
	for i, d := range m.cow {
		n, err := d.CopyTo(files[i])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
