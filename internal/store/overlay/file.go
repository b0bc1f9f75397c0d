package overlay

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/vecio"
)

// overlayFile is the disk's interface to its overlay file. Tests implement it to simulate power cuts.
type overlayFile interface {
	length() (int64, error)
	readAll(bufs [][]byte, off int64) error
	writeAll(bufs [][]byte, off int64) error
	sync() error
	// punch makes a range a hole.
	punch(off, n int64) error
	// nextData returns the first byte from off on that is not in a hole, or end. nextHole returns the first one
	// that is in a hole, or end.
	nextData(off, end int64) (int64, error)
	nextHole(off, end int64) (int64, error)
	// free returns the free bytes of the file system.
	free() (int64, error)
	// used returns the bytes that the file uses.
	used() (int64, error)
}

// opened is an overlayFile that, once frozen, other disks can read as a backing file.
type opened interface{ handle() *os.File }

// file is an overlayFile on a file system.
type file struct{ f *os.File }

func (o file) handle() *os.File { return o.f }

func (o file) length() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o file) readAll(bufs [][]byte, off int64) error {
	return vecio.ReadAt(o.f, bufs, off)
}

func (o file) writeAll(bufs [][]byte, off int64) error {
	return vecio.WriteAt(o.f, bufs, off)
}

func (o file) sync() error { return unix.Fdatasync(int(o.f.Fd())) }

func (o file) punch(off, n int64) error { return vecio.Punch(o.f, off, n) }

func (o file) nextData(off, end int64) (int64, error) { return seek(o.f, off, end, unix.SEEK_DATA) }
func (o file) nextHole(off, end int64) (int64, error) { return seek(o.f, off, end, unix.SEEK_HOLE) }

func (o file) free() (int64, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(int(o.f.Fd()), &st)
	return int64(st.Bavail) * st.Frsize, err
}

func (o file) used() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(o.f.Fd()), &st)
	return st.Blocks * 512, err // stat(2): in units of 512 bytes on every file system
}

func seek(f *os.File, off, end int64, whence int) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), off, whence)
	if errors.Is(err, unix.ENXIO) { // a hole up to the end of the file
		return end, nil
	}
	if err != nil {
		return 0, err
	}
	return min(max(at, off), end), nil
}

// take moves the first n bytes of bufs to the end of out.
func take(out, bufs [][]byte, n int64) (taken, rest [][]byte) {
	for len(bufs) > 0 && n > 0 {
		k := min(n, int64(len(bufs[0])))
		if k > 0 {
			out = append(out, bufs[0][:k])
		}
		if n -= k; k == int64(len(bufs[0])) {
			bufs = bufs[1:]
		} else {
			bufs[0] = bufs[0][k:]
		}
	}
	return out, bufs
}

func lengthOf(bufs [][]byte) (n int64) {
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}
