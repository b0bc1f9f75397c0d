package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Open opens an absolute path as the calling thread may. It follows links, but
// not those of /proc that lead to what a process has open: for the kernel every
// thread here is the agent, to which its own are open. Errors are bare errno.
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

// openParent opens the folder that path lies in, for calls that take a folder
// and a name and follow no link.
func openParent(path string) (*os.File, string, error) {
	d, err := Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	return d, filepath.Base(path), err
}

// self is the path by which this process reaches what f has open. The kernel
// checks the rights to the file again, and those to the folders above it not.
func self(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// realPath is where an open file lies, without any link.
func realPath(f *os.File) (string, error) { return os.Readlink(self(f)) }

// openFile opens what must be a regular file. It looks before it opens, and at
// the same inode: opening a pipe can block, and opening a device can do things.
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

// reopen opens for reading or writing what is open as a path only.
func reopen(at *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open(self(at), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at.Name()), nil
}

// notRegularError says what is at a path where a file was wanted.
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
