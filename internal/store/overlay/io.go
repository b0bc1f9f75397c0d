package overlay

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/vecio"
)

// source is the origin of a run of the disk: the overlay file, a backing file, or zeros if neither is set.
type source struct {
	overlay bool
	file    *os.File
	off     int64 // in the file
}

// at returns the source of the byte at off, and how many of the next n bytes have the same source.
func (d *Disk) at(off, n int64) (source, int64) {
	allocated, next := d.allocated.run(off/BlockSize, (off+n+BlockSize-1)/BlockSize)
	n = min(n, next*BlockSize-off)
	if allocated {
		return source{overlay: true, off: off}, n
	}
	below := extent.From(d.backing, off)
	switch {
	case len(below) == 0:
		return source{}, n
	case below[0].Offset > off:
		return source{}, min(n, below[0].Offset-off)
	}
	e := below[0]
	return source{file: e.File, off: e.FileOffset + off - e.Offset}, min(n, e.End()-off)
}

// ReadVecAt fills all of bufs from off on. It may modify bufs.
func (d *Disk) ReadVecAt(bufs [][]byte, off int64) error {
	n := lengthOf(bufs)
	if err := d.checkRange(off, n); err != nil {
		return err
	}
	for n > 0 {
		k, err := d.readRun(&bufs, off, n)
		if err != nil {
			return fmt.Errorf("read %d bytes at %d: %w", k, off, err)
		}
		off, n = off+k, n-k
	}
	return nil
}

// readRun reads the bytes of one source, and removes their buffers from bufs.
func (d *Disk) readRun(bufs *[][]byte, off, n int64) (k int64, err error) {
	d.backingMu.RLock()
	defer d.backingMu.RUnlock()
	src, k := d.at(off, n)
	d.read, *bufs = take(d.read[:0], *bufs, k)
	return k, d.fill(src, d.read)
}

func (d *Disk) fill(src source, bufs [][]byte) error {
	switch {
	case src.overlay:
		return d.file.readAll(bufs, src.off)
	case src.file != nil:
		return vecio.ReadAt(src.file, bufs, src.off)
	}
	for _, b := range bufs {
		clear(b)
	}
	return nil
}

// WriteVecAt writes all of bufs from off on. Whole blocks become allocated: the rest of the first and last block
// is filled from below. If NoRoom holds for the error, the write can be tried again. Any other error is
// permanent, see Broken.
func (d *Disk) WriteVecAt(bufs [][]byte, off int64) error {
	n := lengthOf(bufs)
	if err := d.checkRange(off, n); err != nil {
		return err
	}
	switch {
	case d.broken != nil:
		return d.broken
	case n == 0:
		return nil
	}
	return d.written(off, n, "write", d.writeVec(bufs, off, n))
}

// written classifies the error of a write.
func (d *Disk) written(off, n int64, doing string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s %d bytes at %d: %w", doing, n, off, err)
	if NoRoom(err) || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return d.lose(err)
}

func (d *Disk) writeVec(bufs [][]byte, off, n int64) error {
	if err := d.room(off/BlockSize, (off+n+BlockSize-1)/BlockSize, n); err != nil {
		return err
	}
	if err := d.format(); err != nil {
		return err
	}
	start, end := off, off+n
	if first := off / BlockSize; !d.allocated.has(first) {
		start = first * BlockSize
	}
	if last := (end - 1) / BlockSize; !d.allocated.has(last) {
		end = min((last+1)*BlockSize, d.size)
	}
	all, err := d.surround(bufs, start, off, off+n, end)
	if err != nil {
		return err
	}
	if err := d.file.writeAll(all, start); err != nil {
		return err
	}
	// Set the bits last: after an error the blocks still come from the backing.
	d.allocated.set(off/BlockSize, (off+n+BlockSize-1)/BlockSize)
	return nil
}

// surround prepends the disk's present content from start to off to bufs, and appends the content from stop to
// end.
func (d *Disk) surround(bufs [][]byte, start, off, stop, end int64) ([][]byte, error) {
	all := d.write[:0]
	if start < off {
		head := make([]byte, off-start)
		if err := d.ReadVecAt([][]byte{head}, start); err != nil {
			return nil, err
		}
		all = append(all, head)
	}
	all = append(all, bufs...)
	if stop < end {
		tail := make([]byte, end-stop)
		if err := d.ReadVecAt([][]byte{tail}, stop); err != nil {
			return nil, err
		}
		all = append(all, tail)
	}
	d.write = all
	return all, nil
}
