package blk

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/vecio"
)

func readAll(b *backing, bufs [][]byte, off int64) error {
	if v, ok := b.Backend.(vectored); ok {
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

func writeAll(b *backing, bufs [][]byte, off int64) error {
	if v, ok := b.Backend.(vectored); ok {
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

// File is a Backend over an open file or block device. The file stays the caller's.
type File struct {
	*os.File
	size int64
}

var (
	_ Backend   = (*File)(nil)
	_ Discarder = (*File)(nil)
	_ vectored  = (*File)(nil)
)

// NewFile returns a File. The file's current size is the disk's.
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

// ReadVecAt fills all of bufs from off on. It may change bufs.
func (f *File) ReadVecAt(bufs [][]byte, off int64) error {
	return vecio.ReadAt(f.File, bufs, off)
}

// WriteVecAt writes all of bufs from off on. It may change bufs.
func (f *File) WriteVecAt(bufs [][]byte, off int64) error {
	return vecio.WriteAt(f.File, bufs, off)
}

// Discard implements Discarder.
func (f *File) Discard(off, n int64) error { return vecio.Punch(f.File, off, n) }

// WriteZeroes implements Discarder. It makes a hole even if the guest does not allow unmapping:
// otherwise a guest could take the host's space with a single request of zeros.
func (f *File) WriteZeroes(off, n int64) error { return vecio.Punch(f.File, off, n) }
