package cowdisk

import (
	"fmt"
	"os"
	"sort"

	"github.com/forkd/forkd/internal/vecio"
)

// source is where a run of the disk comes from: the own file, a base file, or
// neither, for zeros.
type source struct {
	own  bool
	file *os.File
	off  int64 // in the file
}

// at is the source of the byte at off, and how many up to n follow from there.
func (d *Disk) at(off, n int64) (source, int64) {
	own, next := d.owned.run(off/BlockSize, (off+n+BlockSize-1)/BlockSize)
	n = min(n, next*BlockSize-off)
	if own {
		return source{own: true, off: off}, n
	}
	i := sort.Search(len(d.base), func(i int) bool { return d.base[i].Offset+d.base[i].Length > off })
	switch {
	case i == len(d.base):
		return source{}, n
	case d.base[i].Offset > off:
		return source{}, min(n, d.base[i].Offset-off)
	}
	e := d.base[i]
	return source{file: e.File, off: e.FileOffset + off - e.Offset}, min(n, e.Offset+e.Length-off)
}

// ReadVecAt fills all of bufs from off on. It may change bufs.
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

// readRun reads what comes from one source, and takes its buffers off bufs.
func (d *Disk) readRun(bufs *[][]byte, off, n int64) (k int64, err error) {
	d.baseMu.RLock()
	defer d.baseMu.RUnlock()
	src, k := d.at(off, n)
	d.read, *bufs = take(d.read[:0], *bufs, k)
	return k, d.fill(src, d.read)
}

func (d *Disk) fill(src source, bufs [][]byte) error {
	switch {
	case src.own:
		return d.own.readAll(bufs, src.off)
	case src.file != nil:
		return vecio.ReadAt(src.file, bufs, src.off)
	}
	for _, b := range bufs {
		clear(b)
	}
	return nil
}

// WriteVecAt writes all of bufs from off on. Blocks become own as a whole: what
// the request leaves of the first and the last is filled from below.
func (d *Disk) WriteVecAt(bufs [][]byte, off int64) error {
	n := lengthOf(bufs)
	if err := d.checkRange(off, n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	if err := d.format(); err != nil {
		return fmt.Errorf("write %d bytes at %d: %w", n, off, err)
	}
	start, end := off, off+n
	if first := off / BlockSize; !d.owned.has(first) {
		start = first * BlockSize
	}
	if last := (end - 1) / BlockSize; !d.owned.has(last) {
		end = min((last+1)*BlockSize, d.size)
	}
	all, err := d.surround(bufs, start, off, off+n, end)
	if err == nil {
		err = d.own.writeAll(all, start)
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d: %w", n, off, err)
	}
	// Only now: after an error the blocks are still the base's.
	d.owned.set(off/BlockSize, (off+n+BlockSize-1)/BlockSize)
	return nil
}

// surround puts the disk's present content from start to off before bufs, and
// that from stop to end behind it.
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
