package cowdisk

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// BlockSize is the unit in which blocks become own.
const BlockSize = 4096

// sectorSize is the unit of the guest's requests and of a disk's size.
const sectorSize = 512

// MaxSize bounds a disk, so that a damaged trailer cannot ask for much memory.
const MaxSize = 64 << 40

// Extent says where a part of the base is. All in bytes.
type Extent struct {
	File       *os.File
	FileOffset int64
	Offset     int64 // on the disk
	Length     int64
}

// Disk is a disk over a base. It implements blk.Backend and blk.Discarder. One
// goroutine uses it at a time; Rebase may be another's. The files stay the caller's.
type Disk struct {
	own    ownFile
	size   int64
	owned  bitmap
	layout layout

	// baseMu is held for reading while something is read from the base's files,
	// so that Rebase's caller may close those that were its before.
	baseMu sync.RWMutex
	base   []Extent

	// formatted: the own file has its trailer. It is written with the first
	// block, so that the file of a child that writes nothing stays empty.
	formatted bool
	// broken is the error of a failed flush. The kernel tells such an error once
	// and forgets the data, so no later flush may claim success.
	broken error

	read, write [][]byte // scratch of the request in work
}

// Open makes a disk of size bytes. base is ascending and does not overlap; what
// it does not cover is zero. own is an empty file, or one that an earlier Disk
// of the same size and base has left, in whatever way it ended.
func Open(own *os.File, size int64, base []Extent) (*Disk, error) {
	return open(file{own}, size, base)
}

func open(own ownFile, size int64, base []Extent) (*Disk, error) {
	if err := checkBase(size, base); err != nil {
		return nil, err
	}
	d := &Disk{own: own, size: size, base: base, layout: layoutOf(size)}
	d.owned = newBitmap(d.layout.blocks)
	n, err := own.length()
	if err != nil {
		return nil, fmt.Errorf("size of the own file: %w", err)
	}
	if n == 0 {
		return d, nil
	}
	if d.formatted, err = d.layout.check(own, n); err != nil {
		return nil, err
	}
	if !d.formatted {
		return d, nil
	}
	if err := d.owned.load(own, d.layout); err != nil {
		return nil, fmt.Errorf("read the own file's map: %w", err)
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

func checkBase(size int64, base []Extent) error {
	if err := CheckSize(size); err != nil {
		return err
	}
	var room int64 // of the extent's file
	end := int64(0)
	for i, e := range base {
		if e.File != nil && (i == 0 || e.File != base[i-1].File) {
			st, err := e.File.Stat()
			if err != nil {
				return fmt.Errorf("base extent %d: %w", i, err)
			}
			room = st.Size()
		}
		switch {
		case e.File == nil:
			return fmt.Errorf("base extent %d has no file", i)
		case e.Length <= 0 || e.FileOffset < 0 || e.Length > room || e.FileOffset > room-e.Length:
			return fmt.Errorf("base extent %d: %d bytes at %d of a file of %d", i, e.Length, e.FileOffset, room)
		case e.Offset < end:
			return fmt.Errorf("base extent %d begins at %d, before the end of the one before it", i, e.Offset)
		case e.Length > size || e.Offset > size-e.Length: // written so that nothing overflows
			return fmt.Errorf("base extent %d ends beyond the disk's %d bytes", i, size)
		}
		end = e.Offset + e.Length
	}
	return nil
}

// Size implements blk.Backend.
func (d *Disk) Size() int64 { return d.size }

// Flush implements blk.Backend: the blocks first, then the bits that say so.
func (d *Disk) Flush() error {
	if d.broken != nil {
		return d.broken
	}
	if !d.formatted {
		return nil // nothing was ever written
	}
	if err := d.flush(); err != nil {
		d.broken = fmt.Errorf("flush: %w", err)
		return d.broken
	}
	return nil
}

func (d *Disk) flush() error {
	if err := d.own.sync(); err != nil {
		return err
	}
	saved, err := d.owned.save(d.own, d.layout)
	if err != nil || !saved {
		return err
	}
	if err := d.own.sync(); err != nil {
		return err
	}
	d.owned.clean()
	return nil
}

// format writes the trailer, which also gives the file its full length.
func (d *Disk) format() error {
	if d.formatted {
		return nil
	}
	if err := d.own.writeAll([][]byte{d.layout.trailer()}, d.layout.trailerAt()); err != nil {
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
