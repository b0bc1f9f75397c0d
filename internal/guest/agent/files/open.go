package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Open opens an absolute path with the rights of the calling thread. It follows links, except the
// magic links of /proc to open files of a process: to the kernel every thread here is the agent,
// and may open the agent's files. Errors are bare errno.
func Open(path string, flags int) (*os.File, error) { return openAt(nil, path, flags, 0) }

func openAt(dir *os.File, name string, flags int, mode fs.FileMode) (*os.File, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	how := unix.OpenHow{
		Flags: uint64(flags) | unix.O_CLOEXEC, Mode: uint64(mode.Perm()),
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(at, name, &how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), name), nil
		case unix.EINTR, unix.EAGAIN: // a rename raced with the walk
		default:
			return nil, err
		}
	}
}

// openParent opens the parent directory of path, for calls that take a directory and a name and
// follow no link.
func openParent(path string) (*os.File, string, error) {
	d, err := Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	return d, filepath.Base(path), err
}

// self returns the path in /proc by which this process can open f again. The kernel then checks the
// rights to the file again, but not the rights to its parent directories.
func self(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// realPath returns the path of an open file without links.
func realPath(f *os.File) (string, error) { return os.Readlink(self(f)) }

// openFile opens a regular file. It checks the type before it opens the same inode, because opening
// a pipe can block and opening a device can have effects.
func openFile(path string, flags int) (*os.File, fs.FileInfo, error) {
	at, err := Open(path, unix.O_PATH)
	if err != nil {
		return nil, nil, err
	}
	defer at.Close()
	st, err := at.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, &notRegularError{path, st.IsDir()}
	}
	f, err := reopen(at, flags)
	return f, st, err
}

// reopen opens an O_PATH file for reading or writing.
func reopen(at *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open(self(at), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at.Name()), nil
}

// notRegularError reports a path that is not a regular file.
type notRegularError struct {
	path string
	dir  bool
}

func (e *notRegularError) Error() string {
	if e.dir {
		return fmt.Sprintf("path '%s' is a directory", e.path)
	}
	return fmt.Sprintf("path '%s' is not a regular file", e.path)
}
