// Package durable has file system operations for stores that package os lacks: writing small files that survive a
// power cut, one or many, syncing the names in a directory, replacing small files atomically, and bounded reads.
// It knows no format or layout; packages snapshot, layer/store and receipt do. Beware: a durable file may still
// lose its name until its directory is synced, too. A file written by Replace is complete, but not durable.
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

// WriteFile writes a whole file with access for this user only. The content is durable when it returns. It
// overwrites an existing file.
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

// Replace atomically replaces a small file, with access for this user only: readers see either the old or the new
// content. It does not wait for the disk, so after a power cut the file may be empty or missing.
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

// Rewrite atomically and durably replaces a small file, with access for this user only: readers see either the
// old or the new content. When it returns, the new content survives a power cut. Calls for the same path must not
// overlap.
func Rewrite(path string, b []byte) error {
	next := path + ".new"
	// This also keeps WriteFile from following a link with this name.
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// ReadFile reads a whole file of at most limit bytes. It does not follow links or wait for pipes.
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

// Open opens a store's file for reading. It does not follow links or wait for pipes.
func Open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Link gives an open file another name, which must not exist. It uses the descriptor, because the file's own name
// may be gone or reused.
func Link(f *os.File, to string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// SyncDir makes the names in a directory durable. For a file, it syncs the content.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// RenameNew renames a file or directory. The new name must not exist.
func RenameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
