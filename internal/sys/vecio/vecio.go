// Package vecio reads and writes a guest's scattered buffers from and to a file, and punches holes, until all of
// it is done. Devices and disks call it; it knows neither. Beware: it consumes the slices of buffers, so the
// caller's slice is modified.
package vecio

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxBuffers is the kernel's limit for one call (UIO_MAXIOV).
const maxBuffers = 1024

// ReadAt fills all of bufs from off on. It modifies bufs. If the file ends earlier, it returns
// io.ErrUnexpectedEOF.
func ReadAt(f *os.File, bufs [][]byte, off int64) error { return transfer(unix.Preadv, f, bufs, off) }

// WriteAt writes all of bufs from off on. It modifies bufs.
func WriteAt(f *os.File, bufs [][]byte, off int64) error { return transfer(unix.Pwritev, f, bufs, off) }

func transfer(call func(int, [][]byte, int64) (int, error), f *os.File, bufs [][]byte, off int64) error {
	for bufs = skip(bufs, 0); len(bufs) > 0; {
		n, err := call(int(f.Fd()), bufs[:min(len(bufs), maxBuffers)], off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF // the file was truncated
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

// Punch makes n bytes a hole, which reads as zeros and takes no space.
func Punch(f *os.File, off, n int64) error {
	for n > 0 {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}
