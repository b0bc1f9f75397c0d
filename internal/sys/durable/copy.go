package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyPiece is the number of bytes copied between two checks of the context.
const copyPiece = 16 << 20

// CopyFile copies src into the empty file dst. Later writes to one file do not change the other. It shares blocks
// copy-on-write if the file system can, and otherwise copies them, keeping src's holes. If src is written
// meanwhile, CopyFile returns an error. The copy is durable once the caller has synced it.
func CopyFile(ctx context.Context, dst, src *os.File) error {
	before, err := src.Stat()
	if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		return fmt.Errorf("copy %s: it is not a regular file", src.Name())
	}
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) != nil {
		if err := copySparse(ctx, dst, src, before.Size()); err != nil {
			return fmt.Errorf("copy %s: %w", src.Name(), err)
		}
	}
	after, err := src.Stat()
	if err != nil {
		return err
	}
	if before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime()) {
		return fmt.Errorf("copy %s: it was written to meanwhile", src.Name())
	}
	return nil
}

func copySparse(ctx context.Context, dst, src *os.File, size int64) error {
	if err := dst.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		start, err := seek(src, at, size, unix.SEEK_DATA)
		if err != nil {
			return err
		}
		end, err := seek(src, start, size, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for at = start; at < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n, err := copyPart(dst, src, at, min(copyPiece, end-at))
			if err != nil {
				return err
			}
			at += n
		}
	}
	return nil
}

// seek is lseek(2) for data or a hole. It returns size if there is no more, and at itself if the file system does
// not support holes.
func seek(f *os.File, at, size int64, whence int) (int64, error) {
	if at >= size {
		return size, nil
	}
	n, err := unix.Seek(int(f.Fd()), at, whence)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL):
		if whence == unix.SEEK_HOLE {
			return size, nil
		}
		return at, nil
	case err != nil:
		return 0, os.NewSyscallError("lseek", err)
	}
	return min(n, size), nil
}

// copyPart copies within the kernel if the file systems support it, and otherwise by reading and writing.
func copyPart(dst, src *os.File, at, n int64) (int64, error) {
	from, to := at, at
	got, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(n), 0)
	if err == nil && got > 0 {
		return int64(got), nil
	}
	if err != nil && !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) &&
		!errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINTR) {
		return 0, os.NewSyscallError("copy_file_range", err)
	}
	b := make([]byte, min(n, 1<<20))
	read, err := src.ReadAt(b, at)
	if read == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the file was truncated meanwhile
		}
		return 0, err
	}
	_, err = dst.WriteAt(b[:read], at)
	return int64(read), err
}
