// Package durable is what stores of files need of a file system, beyond package
// os: whole small files that survive a power cut, one or many at once, folders
// whose names do, small files that are replaced whole, and reading that is bounded.
// It knows no format and no layout; packages snapshot, layer/store and receipt do.
// The trap: a file that is durable may still lose its name, until its folder is
// synced too; and what Replace writes is whole, but not durable.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteFile writes a whole file, for this user alone, and makes its content
// durable before it returns. A file of that name is overwritten.
func WriteFile(path string, b []byte) error { return writeFile(path, b, true) }

func writeFile(path string, b []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Replace writes a small file, for this user alone, so that whoever reads it sees
// the old content or the new. It does not wait for the disk: after a power cut
// the file may be empty or gone.
func Replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Rewrite replaces a small file, for this user alone: whoever reads it sees the old content
// or the new, and once it returns the new one is there after a power cut. One at a time may
// do so for a path.
func Rewrite(path string, b []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // nor a link of that name is followed
		return err
	}
	if err := WriteFile(next, b); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// ReadFile reads a whole file of at most limit bytes. It follows no link and
// waits for no pipe.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("is over %d bytes", limit)
	}
	return b, err
}

// Open opens a file of a store for reading. It follows no link and waits for no pipe.
func Open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Link gives an open file another name, which nothing may have yet. It goes by the descriptor: the file's
// own name may be gone, or another file's by now.
func Link(f *os.File, to string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// SyncDir makes the names in a folder durable; of a file, its content.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// RenameNew gives a file or folder another name, which nothing may have yet.
func RenameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
