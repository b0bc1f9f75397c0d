package overlay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// BlockSize is the unit of allocation.
const BlockSize = 4096

// sectorSize is the unit of the guest's requests and of a disk's size.
const sectorSize = 512

// MaxSize limits a disk, so that a damaged trailer cannot cause a large allocation.
const MaxSize = 64 << 40

// Disk is an overlay file over backing extents. It implements blk.Backend and blk.Discarder. Only one goroutine
// may use it at a time, except that another may call Rebase. The caller owns the files.
type Disk struct {
	file      overlayFile
	size      int64
	allocated bitmap
	layout    layout

	// backingMu is held for reading during reads from the backing files, so that the caller of Rebase may close
	// the previous ones.
	backingMu sync.RWMutex
	backing   []extent.Extent

	// formatted means that the overlay file has its trailer. The trailer is written with the first block, so that
	// the file of a child without writes stays empty.
	formatted bool
	// broken is the error by which a write was lost. If a flush failed: the kernel reports such an error once and
	// drops the data, so no later flush may succeed. It may also come from a write. Nothing is written after it,
	// so that later data does not depend on missing data.
	broken error

	// mapMu is held while the map is written. A frozen disk is flushed by its successor, and saved (SaveMap) by
	// another goroutine.
	mapMu sync.Mutex

	// frozenMu guards frozen. It is held while one of them is flushed, so that the caller of Rebase may close its
	// file. Lock order: frozenMu, then a frozen disk's mapMu.
	frozenMu sync.Mutex
	// frozen are the disk's earlier states, before its switches, that a flush still has to make durable. They are
	// removed once they are durable, or replaced by layers in Rebase.
	frozen []*Disk

	reserve int64 // see Reserve
	// unchecked is the number of bytes written to new blocks since the last check of free space. Above
	// reserveStep, the space is checked again.
	unchecked int64

	limit int64 // see Limit
	// unlimited is the number of bytes written since the last check of the limit. Above reserveStep, the limit is
	// checked again.
	unlimited int64

	read, write [][]byte // scratch space of the current request
}

// Open opens a disk of size bytes. backing ascends and does not overlap; gaps are zeros. overlay is an empty
// file, or the file of an earlier Disk of the same size and backing, however that one ended.
func Open(overlay *os.File, size int64, backing []extent.Extent) (*Disk, error) {
	return open(file{overlay}, size, backing)
}

func open(overlay overlayFile, size int64, backing []extent.Extent) (*Disk, error) {
	if err := checkBacking(size, backing); err != nil {
		return nil, err
	}
	d := &Disk{file: overlay, size: size, backing: backing, layout: layoutOf(size)}
	d.allocated = newBitmap(d.layout.blocks)
	n, err := overlay.length()
	if err != nil {
		return nil, fmt.Errorf("size of the overlay file: %w", err)
	}
	if n == 0 {
		return d, nil
	}
	if d.formatted, err = d.layout.check(overlay, n); err != nil {
		return nil, err
	}
	if !d.formatted {
		return d, nil
	}
	if err := d.allocated.load(overlay, d.layout); err != nil {
		return nil, fmt.Errorf("read the overlay file's map: %w", err)
	}
	return d, nil
}

// CheckSize returns an error if a disk cannot have this size.
func CheckSize(size int64) error {
	if size <= 0 || size > MaxSize || size%sectorSize != 0 {
		return fmt.Errorf("disk of %d bytes: want whole sectors of %d, at most %d bytes", size, sectorSize, int64(MaxSize))
	}
	return nil
}

func checkBacking(size int64, backing []extent.Extent) error {
	if err := CheckSize(size); err != nil {
		return err
	}
	if err := extent.Check(backing, size); err != nil {
		return fmt.Errorf("backing %w", err)
	}
	return checkFiles(backing)
}

// checkFiles rejects extents that cannot be read.
func checkFiles(backing []extent.Extent) error {
	var room int64 // size of the extent's file
	for i, e := range backing {
		if e.Zero() {
			return fmt.Errorf("backing extent %d has no file", i)
		}
		if i == 0 || e.File != backing[i-1].File {
			st, err := e.File.Stat()
			if err != nil {
				return fmt.Errorf("backing extent %d: %w", i, err)
			}
			room = st.Size()
		}
		if e.Length > room || e.FileOffset > room-e.Length {
			return fmt.Errorf("backing extent %d: %d bytes at %d of a file of %d", i, e.Length, e.FileOffset, room)
		}
	}
	return nil
}

// Size implements blk.Backend.
func (d *Disk) Size() int64 { return d.size }

// Flush implements blk.Backend. It syncs the blocks first, then the bits. If NoRoom holds for its error and
// Broken returns nil, it can be tried again.
func (d *Disk) Flush() error {
	if d.broken != nil {
		return d.broken
	}
	if err := d.flushFrozen(); err != nil {
		return err
	}
	if !d.formatted {
		return nil // there were no writes
	}
	return d.flush()
}

// flushFrozen makes the writes before the disk's switches durable.
func (d *Disk) flushFrozen() error {
	d.frozenMu.Lock()
	defer d.frozenMu.Unlock()
	for len(d.frozen) > 0 {
		if err := d.frozen[0].Flush(); err != nil {
			d.broken = d.frozen[0].broken
			return err
		}
		d.frozen = d.frozen[1:]
	}
	return nil
}

func (d *Disk) flush() error {
	d.mapMu.Lock()
	defer d.mapMu.Unlock()
	// The data is lost whatever the error, even if there is no space: the kernel may have dropped the blocks, and
	// there is no other copy.
	if err := d.file.sync(); err != nil {
		return d.lose(fmt.Errorf("flush: %w", err))
	}
	saved, err := d.allocated.save(d.file, d.layout)
	if saved && err == nil {
		err = d.file.sync()
	}
	switch {
	case NoRoom(err): // the bits are still in memory and dirty
		return fmt.Errorf("flush: %w", err)
	case err != nil:
		return d.lose(fmt.Errorf("flush: %w", err))
	}
	d.allocated.clean()
	return nil
}

// lose records that a write is lost for good.
func (d *Disk) lose(err error) error {
	d.broken = err
	return err
}

// Broken returns the error by which the disk has lost a write, or nil.
func (d *Disk) Broken() error { return d.broken }

// NoRoom reports whether an error will go away when the host has free space.
func NoRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// format writes the trailer. This also extends the file to its full length.
func (d *Disk) format() error {
	if d.formatted {
		return nil
	}
	if err := d.file.writeAll([][]byte{d.layout.trailer()}, d.layout.trailerAt()); err != nil {
		return err
	}
	d.formatted = true
	return nil
}

// checkRange checks the range for callers other than the device, which has checked the guest's requests.
func (d *Disk) checkRange(off, n int64) error {
	if off < 0 || n < 0 || n > d.size || off > d.size-n {
		return fmt.Errorf("%d bytes at %d of a disk of %d", n, off, d.size)
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	short := error(nil)
	if off >= 0 && off <= d.size && int64(len(p)) > d.size-off {
		p, short = p[:d.size-off], io.EOF
	}
	if err := d.ReadVecAt([][]byte{p}, off); err != nil {
		return 0, err
	}
	return len(p), short
}

// WriteAt implements io.WriterAt.
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	if err := d.WriteVecAt([][]byte{p}, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
