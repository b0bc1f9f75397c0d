package blk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func readAll(b Backend, bufs [][]byte, off int64) error {
	if v, ok := b.(vectored); ok {
		return v.ReadVecAt(bufs, off)
	}
	for _, p := range bufs {
		if n, err := b.ReadAt(p, off); n < len(p) {
			return fmt.Errorf("read %d of %d bytes at %d: %w", n, len(p), off, err)
		}
		off += int64(len(p))
	}
	return nil
}

func writeAll(b Backend, bufs [][]byte, off int64) error {
	if v, ok := b.(vectored); ok {
		return v.WriteVecAt(bufs, off)
	}
	for _, p := range bufs {
		if _, err := b.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// File is a Backend over an open file or block device. The file stays the
// caller's.
type File struct {
	*os.File
	size int64
}

var (
	_ Backend   = (*File)(nil)
	_ Discarder = (*File)(nil)
	_ vectored  = (*File)(nil)
)

// NewFile takes the file's present size as the disk's.
func NewFile(f *os.File) (*File, error) {
	size, err := f.Seek(0, io.SeekEnd) // a block device's Stat has no size
	if err != nil {
		return nil, fmt.Errorf("find size of disk: %w", err)
	}
	return &File{f, size}, nil
}

// Size implements Backend.
func (f *File) Size() int64 { return f.size }

// Flush implements Backend.
func (f *File) Flush() error { return unix.Fdatasync(int(f.Fd())) }

// ReadVecAt fills all of bufs from off on.
func (f *File) ReadVecAt(bufs [][]byte, off int64) error {
	return f.transfer(unix.Preadv, bufs, off)
}

// WriteVecAt writes all of bufs from off on.
func (f *File) WriteVecAt(bufs [][]byte, off int64) error {
	return f.transfer(unix.Pwritev, bufs, off)
}

// transfer repeats call until all of bufs is moved. It may change bufs.
func (f *File) transfer(call func(int, [][]byte, int64) (int, error), bufs [][]byte, off int64) error {
	for bufs = skip(bufs, 0); len(bufs) > 0; {
		n, err := call(int(f.Fd()), bufs, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF // the image is shorter than it was
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

// Discard implements Discarder.
func (f *File) Discard(off, n int64) error {
	return f.allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// WriteZeroes implements Discarder.
func (f *File) WriteZeroes(off, n int64, unmap bool) error {
	if !unmap {
		err := f.allocate(unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	// A hole reads as zeroes too, and more file systems (tmpfs) can make one.
	return f.allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (f *File) allocate(mode uint32, off, n int64) error {
	if n == 0 {
		return nil
	}
	return unix.Fallocate(int(f.Fd()), mode, off, n)
}
