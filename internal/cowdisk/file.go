package cowdisk

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ownFile is what a disk asks of its own file; tests lose power behind it.
type ownFile interface {
	length() (int64, error)
	readAll(bufs [][]byte, off int64) error
	writeAll(bufs [][]byte, off int64) error
	sync() error
	// punch makes a hole in a range; zero makes it read as zeros and may keep its room.
	punch(off, n int64) error
	zero(off, n int64) error
	// nextData is the first byte from off on that is in no hole, or end.
	// nextHole is the first that is in one, or end.
	nextData(off, end int64) (int64, error)
	nextHole(off, end int64) (int64, error)
}

// file is an ownFile on a file system.
type file struct{ f *os.File }

func (o file) length() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o file) readAll(bufs [][]byte, off int64) error {
	return transfer(unix.Preadv, o.f, bufs, off)
}

func (o file) writeAll(bufs [][]byte, off int64) error {
	return transfer(unix.Pwritev, o.f, bufs, off)
}

func (o file) sync() error { return unix.Fdatasync(int(o.f.Fd())) }

func (o file) punch(off, n int64) error {
	return allocate(o.f, unix.FALLOC_FL_PUNCH_HOLE, off, n)
}

func (o file) zero(off, n int64) error {
	err := allocate(o.f, unix.FALLOC_FL_ZERO_RANGE, off, n)
	if errors.Is(err, errors.ErrUnsupported) { // tmpfs
		return o.punch(off, n)
	}
	return err
}

func (o file) nextData(off, end int64) (int64, error) { return seek(o.f, off, end, unix.SEEK_DATA) }
func (o file) nextHole(off, end int64) (int64, error) { return seek(o.f, off, end, unix.SEEK_HOLE) }

func allocate(f *os.File, mode uint32, off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func seek(f *os.File, off, end int64, whence int) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), off, whence)
	if errors.Is(err, unix.ENXIO) { // nothing but a hole up to the end of the file
		return end, nil
	}
	if err != nil {
		return 0, err
	}
	return min(max(at, off), end), nil
}

// maxBuffers is the kernel's limit for one call (UIO_MAXIOV).
const maxBuffers = 1024

// transfer repeats call until all of bufs is moved. It changes bufs.
func transfer(call func(int, [][]byte, int64) (int, error), f *os.File, bufs [][]byte, off int64) error {
	for bufs = skip(bufs, 0); len(bufs) > 0; {
		n, err := call(int(f.Fd()), bufs[:min(len(bufs), maxBuffers)], off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF // the file is shorter than it was
		}
		off += int64(n)
		bufs = skip(bufs, n)
	}
	return nil
}

// skip drops n bytes and then all empty buffers from the front.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
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
