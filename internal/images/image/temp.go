package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/tempdir"
)

const tempPrefix = ".tmp-"

// makeTemp makes a directory for a part that is not finished. The next sweep removes those of killed processes.
func makeTemp(parent string) (*tempdir.Dir, error) { return tempdir.Make(parent, tempPrefix) }

func sweep(parent string) error { return tempdir.Sweep(parent, tempPrefix, tempdir.RemoveTree) }

// publish makes dir appear as parent/name, replacing an existing one. Everything is durable before it returns.
func publish(tmp *tempdir.Dir, parent, name string) error {
	if err := syncTree(tmp.Path); err != nil {
		return err
	}
	if err := os.Chmod(tmp.Path, 0o755); err != nil { // MkdirTemp sets 0700
		return err
	}
	target := filepath.Join(parent, name)
	if err := takePlace(tmp.Path, target); err != nil {
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
