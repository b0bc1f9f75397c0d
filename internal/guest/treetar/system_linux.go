package treetar

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// inodeOf identifies a file with several names.
func inodeOf(st fs.FileInfo) (_ inode, several bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Nlink < 2 || !st.Mode().IsRegular() {
		return inode{}, false
	}
	return inode{sys.Dev, sys.Ino}, true
}

// filled returns the size of a file without holes, as far as its block count shows.
func filled(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return min(st.Size(), sys.Blocks*512)
	}
	return st.Size()
}

// nextData returns the next extent of data at or after at. It returns limit twice if there is no
// data below limit. On a file system without holes, a file has one extent.
func nextData(f *os.File, at, limit int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return limit, limit, nil
	case errors.Is(err, unix.EINVAL):
		return at, limit, nil
	case err != nil:
		return 0, 0, err
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, err
	}
	return min(from, limit), min(to, limit), nil
}
