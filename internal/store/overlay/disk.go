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

// BlockSize is the unit in which blocks become allocated.
const BlockSize = 4096

// sectorSize is the unit of the guest's requests and of a disk's size.
const sectorSize = 512

// MaxSize bounds a disk, so that a damaged trailer cannot ask for much memory.
const MaxSize = 64 << 40

// Disk is an overlay file over backing extents. It implements blk.Backend and blk.Discarder. One
// goroutine uses it at a time; Rebase may be another's. The files stay the caller's.
type Disk struct {
	file      overlayFile
	size      int64
	allocated bitmap
	layout    layout

	// backingMu is held for reading while something is read from the backing files,
	// so that Rebase's caller may close those that were its before.
	backingMu sync.RWMutex
	backing   []extent.Extent

	// formatted: the overlay file has its trailer. It is written with the first
	// block, so that the file of a child that writes nothing stays empty.
	formatted bool
	// broken is the error by which a write was lost: of a flush, since the kernel tells
	// such an error once and forgets the data, so that no later flush may claim success, or of
	// a write. Nothing is written after it, so that nothing follows on what is missing.
	broken error

	// mapMu is held while the map is written. A frozen disk is flushed by the one that went
	// on, and saved (SaveMap) by another goroutine.
	mapMu sync.Mutex

	// frozenMu guards frozen, and is held while one of them is flushed, so that Rebase's caller
	// may close its file. Lock order: frozenMu, then a frozen disk's mapMu.
	frozenMu sync.Mutex
	// frozen are what the disk was before its switches, as long as what a flush promises
	// is theirs to keep: until they are durable, or Rebase has put layers in their stead.
	frozen []*Disk

	reserve int64 // see Reserve
	// unchecked is how much was written into new blocks since the room was looked at; more than
	// reserveStep: look again.
	unchecked int64

	limit int64 // see Limit
	// unlimited is how much was written since the limit was looked at; more than reserveStep: look again.
	unlimited int64

	read, write [][]byte // scratch of the request in work
}

// Open makes a disk of size bytes. backing rises and does not overlap; what
// it does not cover is zero. overlay is an empty file, or one that an earlier Disk
// of the same size and backing has left, in whatever way it ended.
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

// CheckSize says whether a disk may have this size.
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

// checkFiles refuses extents that cannot be read.
func checkFiles(backing []extent.Extent) error {
	var room int64 // of the extent's file
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

// Flush implements blk.Backend: the blocks first, then the bits that say so.
// After an error for which NoRoom holds, and Broken does not, it can be tried again.
func (d *Disk) Flush() error {
	if d.broken != nil {
		return d.broken
	}
	if err := d.flushFrozen(); err != nil {
		return err
	}
	if !d.formatted {
		return nil // nothing was ever written
	}
	return d.flush()
}

// flushFrozen makes durable what the disk wrote before it was switched.
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
	// Whatever the error, even that there is no room: the kernel may have dropped the blocks
	// by now, and they are nowhere else.
	if err := d.file.sync(); err != nil {
		return d.lose(fmt.Errorf("flush: %w", err))
	}
	saved, err := d.allocated.save(d.file, d.layout)
	if saved && err == nil {
		err = d.file.sync()
	}
	switch {
	case NoRoom(err): // the bits are still in memory, dirty
		return fmt.Errorf("flush: %w", err)
	case err != nil:
		return d.lose(fmt.Errorf("flush: %w", err))
	}
	d.allocated.clean()
	return nil
}

// lose notes that a write is lost for good.
func (d *Disk) lose(err error) error {
	d.broken = err
	return err
}

// Broken is the error by which the disk has lost a write; nil: it has lost none.
func (d *Disk) Broken() error { return d.broken }

// NoRoom tells an error that goes away when there is room on the host.
func NoRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// format writes the trailer, which also gives the file its full length.
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

// checkRange: the device has checked the guest's, this is for other callers.
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
