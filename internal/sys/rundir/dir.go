package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// Dir is an open directory of this user. Its methods only access files in it.
type Dir struct {
	f    *os.File
	path string
}

// openAt opens a directory, which must belong to this user and must not be a link.
func openAt(at int, name, path string) (*Dir, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR): // a link gives ENOTDIR with O_DIRECTORY
		return nil, fmt.Errorf("%w: it is a link or no directory; remove it, or name another directory", ErrRefused)
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Dir{os.NewFile(uintptr(fd), path), path}
	if err := owned(fd, unix.S_IFDIR); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// owned rejects files with another type or owner, and files writable by others.
func owned(fd int, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	return mine(&st, kind)
}

func mine(st *unix.Stat_t, kind uint32) error {
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return fmt.Errorf("%w: it is of another type", ErrRefused)
	case st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%w: it belongs to user %d, not to user %d who runs the daemon; name another directory",
			ErrRefused, st.Uid, os.Geteuid())
	case writableByOthers(st):
		return fmt.Errorf("%w: other users can write to it (mode %04o); use an empty or new directory",
			ErrRefused, st.Mode&0o7777)
	case kind == unix.S_IFREG && st.Nlink > 1:
		return fmt.Errorf("%w: it has another name elsewhere", ErrRefused)
	}
	return nil
}

// writableByOthers reports whether other users can write. It ignores groups of this user alone, which
// distributions create for each user, and root's group.
func writableByOthers(st *unix.Stat_t) bool {
	own := st.Gid == 0 || st.Gid == uint32(os.Geteuid())
	return st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && !own
}

func (d *Dir) fd() int { return int(d.f.Fd()) }

// Close closes the directory. Its files stay.
func (d *Dir) Close() error { return d.f.Close() }

// Names returns the names in the directory, sorted.
func (d *Dir) Names() ([]string, error) {
	// Open it again, because all readers share the position of a directory's descriptor.
	fd, err := unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (d *Dir) create(name string) (*os.File, error) {
	fd, err := unix.Openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: filepath.Join(d.path, name), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.path, name)), nil
}

// Lock locks the directory's lock file until the returned file is closed. It returns os.ErrExist if another
// process holds the lock.
func (d *Dir) Lock() (*os.File, error) {
	fd, err := unix.Openat(d.fd(), "lock", unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	path := filepath.Join(d.path, "lock")
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	err = owned(fd, unix.S_IFREG)
	if err == nil {
		if err = filelock.Try(f); errors.Is(err, filelock.ErrHeld) {
			err = os.ErrExist
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// Sub opens a subdirectory, and creates it if it is missing.
func (d *Dir) Sub(name string) (*Dir, error) {
	if err := unix.Mkdirat(d.fd(), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(d.path, name), Err: err}
	}
	path := filepath.Join(d.path, name)
	sub, err := openAt(d.fd(), name, path)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", path, err)
	}
	return sub, nil
}

// plain reports whether a name is a file or a socket of this user, and not a link.
func (d *Dir) plain(name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	kind := uint32(unix.S_IFREG)
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		kind = unix.S_IFSOCK
	}
	return mine(&st, kind) == nil
}

// Check verifies a subdirectory before its content is trusted. The subdirectory, and each file and socket in it
// for which known returns true, must belong to this user and must not be a link.
func (d *Dir) Check(name string, known func(string) bool) error {
	sub, err := openAt(d.fd(), name, filepath.Join(d.path, name))
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if known(n) && !sub.plain(n) {
			return fmt.Errorf("%w: its %s is a link, or not a file of this user alone", ErrRefused, n)
		}
	}
	return nil
}

// Remove removes the files in a subdirectory for which known returns true. Then it removes the subdirectory,
// unless other files are left; left lists them. A missing subdirectory is no error.
func (d *Dir) Remove(name string, known func(string) bool) (left []string, err error) {
	sub, err := openAt(d.fd(), name, filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	names, err := sub.Names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if !known(n) {
			left = append(left, n)
			continue
		}
		if err := unix.Unlinkat(sub.fd(), n, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return left, &fs.PathError{Op: "remove", Path: filepath.Join(sub.path, n), Err: err}
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	if err := unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, &fs.PathError{Op: "remove", Path: sub.path, Err: err}
	}
	return nil, nil
}
