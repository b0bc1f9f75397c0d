package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
)

const tempPrefix = ".tmp-"

// tempDir is a directory in use. The kernel releases its lock when the process ends, which distinguishes it from
// the directory of a killed process.
type tempDir struct {
	path string
	lock *os.File
}

// makeTempTries limits the directories that another process sweeps before they have their lock.
const makeTempTries = 10

func makeTemp(parent string) (t *tempDir, err error) {
	for range makeTempTries {
		if t, err = tryTemp(parent); t != nil {
			return t, nil
		}
	}
	return nil, err
}

// tryTemp returns neither a directory nor a lock if a sweep came between.
func tryTemp(parent string) (*tempDir, error) {
	path, err := os.MkdirTemp(parent, tempPrefix)
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
	return &tempDir{path: path, lock: lock}, nil
}

// stillThere returns an error if a path is not that of an open directory any more.
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

// remove deletes the directory if it was not renamed, and releases the lock.
func (t *tempDir) remove() {
	if err := removeTree(t.path); err == nil || errors.Is(err, os.ErrNotExist) {
		t.lock.Close()
		return
	}
	t.lock.Close() // the next sweep tries again
}

// sweep removes the directories of dead processes. It may take one that has no lock yet, and makeTemp makes another.
func sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.IsDir() {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := os.Open(path)
		if err != nil {
			continue // gone, or another user's
		}
		if filelock.Try(lock) == nil {
			err = removeTree(path)
		}
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeTree deletes a directory, unless it contains a mount: an interrupted build may have left the host's /dev
// or /proc there, which must not be deleted.
func removeTree(path string) error {
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
	return os.RemoveAll(path)
}

// publish makes dir appear as parent/name, replacing an existing one. Everything is durable before it returns.
func publish(tmp *tempDir, parent, name string) error {
	if err := syncTree(tmp.path); err != nil {
		return err
	}
	if err := os.Chmod(tmp.path, 0o755); err != nil { // MkdirTemp sets 0700
		return err
	}
	target := filepath.Join(parent, name)
	if err := takePlace(tmp.path, target); err != nil {
		return fmt.Errorf("rename to %s: %w", target, err)
	}
	return durable.SyncDir(parent) // the previous directory has the temporary name now, and is removed with it
}

// takePlace renames a directory to target. If target exists, it gets the directory's name in exchange. Other
// processes may do the same or remove the target.
func takePlace(path, target string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, target, unix.RENAME_EXCHANGE)
		if !errors.Is(err, syscall.ENOENT) {
			return err
		}
		err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
		if !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
}

// syncTree syncs the files of a directory and the directory.
func syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := syncTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
			continue
		}
		if err := durable.SyncDir(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return durable.SyncDir(dir)
}

// linkOrCopy creates dst as a hard link to src, or as a copy if that is not possible.
func linkOrCopy(src, dst string) error {
	if os.Link(src, dst) == nil {
		return nil
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := out.ReadFrom(in); err != nil {
		out.Close()
		return fmt.Errorf("copy %s: %w", src, err)
	}
	return out.Close()
}
