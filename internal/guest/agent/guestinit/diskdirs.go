package guestinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDiskDirs limits the directories of an image that lie directly on the writable disk.
const maxDiskDirs = 16

// mountDiskDirs mounts directories of the writable disk over directories of the root. Programs that
// make overlay file systems of their own, such as Docker, need them: an overlay cannot be the upper
// layer of another. A directory that fails does not keep the others from being mounted. The root may
// have been changed by anyone in an earlier boot, so no link of it leads out of it.
func mountDiskDirs(root, disk string, dirs []string) error {
	if len(dirs) > maxDiskDirs {
		return fmt.Errorf("the image has %d directories on the disk, want at most %d", len(dirs), maxDiskDirs)
	}
	var errs []error
	for _, dir := range dirs {
		if err := mountDiskDir(root, disk, dir); err != nil {
			errs = append(errs, fmt.Errorf("mount %s from the disk: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func mountDiskDir(root, disk, dir string) error {
	name := strings.TrimPrefix(filepath.Clean(dir), "/")
	if !filepath.IsAbs(dir) || name == "" {
		return errors.New("it is not an absolute path below the root")
	}
	to, st, err := openDir(root, name)
	if err != nil {
		return err
	}
	defer to.Close()
	from, _, err := openDir(disk, name)
	if err != nil {
		return err
	}
	defer from.Close()
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		err = from.Chown(int(sys.Uid), int(sys.Gid))
	}
	if err := errors.Join(err, from.Chmod(st.Mode())); err != nil {
		return err
	}
	return unix.Mount(descriptor(from), descriptor(to), "", unix.MS_BIND, "")
}

func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// openDir opens a directory below root, and makes it if it is missing.
func openDir(root, name string) (*os.File, os.FileInfo, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if err := r.MkdirAll(name, 0o755); err != nil {
		return nil, nil, err
	}
	f, err := r.Open(name)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}
