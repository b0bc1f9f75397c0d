package overlay

import (
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/sys/vecio"
)

// Allocated calls fn for the allocated blocks in ascending runs of maximal length. The last run is cut at the
// disk's end. A run is zero if it is a hole. The disk must not be written meanwhile.
func (d *Disk) Allocated(fn func(off, n int64, zero bool) error) error {
	for b := int64(0); b < d.layout.blocks; {
		allocated, next := d.allocated.run(b, d.layout.blocks)
		if allocated {
			if err := d.runs(b, next, fn); err != nil {
				return err
			}
		}
		b = next
	}
	return nil
}

// runs splits allocated blocks into data and holes. A block with some data is data, regardless of the host's
// block size.
func (d *Disk) runs(first, end int64, fn func(off, n int64, zero bool) error) error {
	emit := func(from, to int64, zero bool) error {
		if from >= to {
			return nil
		}
		off := from * BlockSize
		return fn(off, min(to*BlockSize, d.size)-off, zero)
	}
	for b := first; b < end; {
		data, err := d.file.nextData(b*BlockSize, end*BlockSize)
		if err != nil {
			return fmt.Errorf("find data of the overlay file: %w", err)
		}
		from := data / BlockSize
		if err := emit(b, min(from, end), true); err != nil {
			return err
		}
		if from >= end {
			return nil
		}
		to, err := d.dataEnd(from, end)
		if err != nil {
			return fmt.Errorf("find holes of the overlay file: %w", err)
		}
		if err := emit(from, to, false); err != nil {
			return err
		}
		b = to
	}
	return nil
}

// dataEnd returns the end of the blocks with data from first on. A hole within a block does not end the data.
func (d *Disk) dataEnd(first, end int64) (int64, error) {
	for b := first; b < end; {
		hole, err := d.file.nextHole(b*BlockSize, end*BlockSize)
		if err != nil {
			return 0, err
		}
		to := (hole + BlockSize - 1) / BlockSize
		if to >= end {
			return end, nil
		}
		data, err := d.file.nextData(to*BlockSize, end*BlockSize)
		if err != nil {
			return 0, err
		}
		if data/BlockSize > to {
			return to, nil
		}
		b = max(to, b+1)
	}
	return end, nil
}

// CopyTo writes the whole disk, overlay and backing, as a sparse copy into a file. The copy starts at the file's
// present position; the file must have no data there yet. CopyTo returns the number of data bytes. It does not
// sync the file.
func (d *Disk) CopyTo(dst *os.File) (int64, error) {
	start, err := dst.Seek(0, io.SeekCurrent)
	if err == nil {
		err = dst.Truncate(start + d.size)
	}
	if err != nil {
		return 0, fmt.Errorf("copy disk: %w", err)
	}
	c := copier{dst: dst, start: start, buf: make([]byte, copyChunk)}
	for off := int64(0); off < d.size; {
		src, n := d.at(off, d.size-off)
		if err := c.copy(d, src, off, n); err != nil {
			return c.copied, fmt.Errorf("copy disk: %d bytes at %d: %w", n, off, err)
		}
		off += n
	}
	return c.copied, nil
}

const copyChunk = 256 << 10

type copier struct {
	dst    *os.File
	start  int64 // of the copy in dst
	buf    []byte
	copied int64
}

// copy copies the data of one run, and leaves its holes.
func (c *copier) copy(d *Disk, src source, off, n int64) error {
	from := d.file
	if !src.overlay {
		if src.file == nil {
			return nil
		}
		from = file{src.file}
	}
	for at, end := src.off, src.off+n; at < end; {
		data, err := from.nextData(at, end)
		if err != nil || data >= end {
			return err
		}
		hole, err := from.nextHole(data, end)
		if err != nil {
			return err
		}
		if hole <= data { // the file was changed concurrently
			return io.ErrUnexpectedEOF
		}
		if err := c.move(from, data, off+data-src.off, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

func (c *copier) move(from overlayFile, at, to, n int64) error {
	for n > 0 {
		b := c.buf[:min(n, int64(len(c.buf)))]
		if err := from.readAll([][]byte{b}, at); err != nil {
			return err
		}
		if err := vecio.WriteAt(c.dst, [][]byte{b}, c.start+to); err != nil {
			return err
		}
		k := int64(len(b))
		at, to, n, c.copied = at+k, to+k, n-k, c.copied+k
	}
	return nil
}

// NextData returns the first offset from off on that may have non-zero content, or the disk's size. It skips the
// holes of the overlay file and of the backing files.
func (d *Disk) NextData(off int64) (int64, error) {
	for off < d.size {
		src, n := d.at(off, d.size-off)
		from := d.file
		if !src.overlay {
			from = file{src.file}
		}
		if src.overlay || src.file != nil {
			at, err := from.nextData(src.off, src.off+n)
			if err != nil {
				return 0, fmt.Errorf("find data of the disk from %d on: %w", off, err)
			}
			if at < src.off+n {
				return off + at - src.off, nil
			}
		}
		off += n
	}
	return d.size, nil
}
