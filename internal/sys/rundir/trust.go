package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckData checks a data directory. It must belong to this user, and no other user may be able to write to it or
// replace it. Unlike a run directory it may be a link, may be readable by others, and may contain other files.
// CheckData creates a missing directory.
func CheckData(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	err := trusted(path)
	if err == nil {
		var st unix.Stat_t
		if err = unix.Stat(path, &st); err == nil {
			err = mine(&st, unix.S_IFDIR)
		}
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	return nil
}

// maxLinks limits the links in a path, like the kernel (path_resolution(7)).
const maxLinks = 40

// trusted rejects an absolute path that another user could redirect. Every directory above it, and every link on
// the way, must belong to root or this user. No directory above may be writable by others, unless it is sticky,
// so that users can rename only their own files.
func trusted(path string) error {
	at, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		if err := trustedFolder(at); err != nil {
			return err
		}
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // from a link; at has no ".."
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		var st unix.Stat_t
		if err := unix.Lstat(next, &st); err != nil {
			return fmt.Errorf("look at %s: %w", next, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return fmt.Errorf("%w: too many links at %s", ErrRefused, next)
		}
		if !trustedOwner(st.Uid) {
			return fmt.Errorf("%w: %s is a link of user %d; name another directory", ErrRefused, next, st.Uid)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	return nil
}

// split drops empty names and ".". It keeps "..", whose meaning depends on a preceding link.
func split(path string) (names []string) {
	for _, n := range strings.Split(path, "/") {
		if n != "" && n != "." {
			names = append(names, n)
		}
	}
	return names
}

func trustedFolder(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is no directory", path)
	case !trustedOwner(st.Uid):
		return fmt.Errorf("%w: %s above it belongs to user %d, who could put another directory in its place; name one "+
			"below a directory of this user or root",
			ErrRefused, path, st.Uid)
	case writableByOthers(&st) && st.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("%w: other users can write to its parent %s (mode %04o) and could replace it; run `chmod go-w` on the parent, or use another directory",
			ErrRefused, path, st.Mode&0o7777)
	}
	return nil
}

func trustedOwner(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Geteuid()) || uid == outside()
}

// nobody is a uid that never owns files.
const nobody = ^uint32(0)

// outside returns the owner of all files outside of this user namespace, as in a rootless container: the host's
// root, the owner of the root directory.
func outside() uint32 {
	var st unix.Stat_t
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295" || unix.Stat("/", &st) != nil {
		return nobody
	}
	return st.Uid
}

// LockData locks the lock file of a data directory that passed CheckData; see Dir.Lock.
func LockData(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Dir{os.NewFile(uintptr(fd), path), path}
	defer d.Close()
	return d.Lock()
}
