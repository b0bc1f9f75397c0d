package landlock

import "golang.org/x/sys/unix"

// What is left of files.
const (
	// Execute: the kernel opens a program for reading, too.
	Execute = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	// Read is a file's content; of a directory, all below it can be read and listed.
	Read     = unix.LANDLOCK_ACCESS_FS_READ_FILE
	ReadTree = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// Append has files of a directory made, written, renamed within it, and removed.
	Append = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	Remove = unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
)

// The versions of the interface that brought more than files.
const (
	TCPSince   = 4
	ScopeSince = 6
)

// fileRights are those of files by the version of Landlock's interface that brought them.
var fileRights = []struct {
	since  int
	rights uint64
}{
	{1, unix.LANDLOCK_ACCESS_FS_EXECUTE<<13 - unix.LANDLOCK_ACCESS_FS_EXECUTE}, // the first 13
	{2, unix.LANDLOCK_ACCESS_FS_REFER},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
}

// AllFiles are the rights of files that a version can take away.
func AllFiles(version int) (rights uint64) {
	for _, f := range fileRights {
		if version >= f.since {
			rights |= f.rights
		}
	}
	return rights
}
