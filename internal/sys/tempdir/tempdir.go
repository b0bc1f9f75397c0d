// Package tempdir makes folders for work that ends with its process. A folder is locked while it is in use, so a later
// process knows those of killed processes, and removes them. It does not know what is in the folders.
//
// The trap: a child process that is being started holds the lock for a moment longer than its parent.
//
// Start reading at Make.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// Dir is a folder in use. The kernel releases its lock when the process ends.
type Dir struct {
	Path string
	lock *os.File
}

// tries limits the folders that another process sweeps before they have their lock.
const tries = 10

// Make makes a folder in parent. Its name begins with prefix.
func Make(parent, prefix string) (d *Dir, err error) {
	for range tries {
		if d, err = try(parent, prefix); d != nil {
			return d, nil
		}
	}
	return nil, err
}

// try returns neither a folder nor a lock if a sweep came between.
func try(parent, prefix string) (*Dir, error) {
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err == nil {
		err = filelock.Try(lock)
	}
	if err == nil {
		err = stillThere(lock, path)
	}
	if err != nil {
		lock.Close() // harmless if nil
		os.Remove(path)
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Dir{Path: path, lock: lock}, nil
}

// stillThere returns an error if a path is not that of an open folder any more.
func stillThere(dir *os.File, path string) error {
	mine, err := dir.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(path)
	if err == nil && !os.SameFile(mine, now) {
		err = os.ErrNotExist
	}
	return err
}

// Remove deletes the folder if it was not renamed, and releases the lock. After a failure the next sweep tries again.
func (d *Dir) Remove() {
	_ = RemoveTree(d.Path)
	d.Release()
}

// Release releases the lock, and keeps the folder.
func (d *Dir) Release() { d.lock.Close() }

// Sweep removes this user's folders of dead processes in parent by remove. It may take one that has no lock yet, and
// Make makes another.
func Sweep(parent, prefix string, remove func(path string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !e.IsDir() {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // gone, or another user's
		}
		if mine(lock) && filelock.Try(lock) == nil {
			err = remove(path)
		}
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// mine reports whether this user has made the folder: in the system's temporary directory others may make one.
func mine(dir *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(dir.Fd()), &st) == nil && int(st.Uid) == os.Geteuid() // #nosec G115 -- a descriptor
}

// RemoveTree retries for dying while processes of a killed one still write: the kernel ends them soon.
const (
	dying = 2 * time.Second
	pause = 20 * time.Millisecond
)

// RemoveTree deletes a folder, unless it contains a mount: interrupted work may have left the host's /dev or /proc
// there, which must not be deleted.
func RemoveTree(path string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], abs+"/") {
			return fmt.Errorf("remove %s: %s is mounted; unmount it first", path, fields[4])
		}
	}
	for end := time.Now().Add(dying); ; time.Sleep(pause) {
		err = os.RemoveAll(path)
		busy := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY)
		if !busy || time.Now().After(end) {
			return err
		}
	}
}
