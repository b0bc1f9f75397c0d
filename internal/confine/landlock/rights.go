package landlock

import "golang.org/x/sys/unix"

// Rights to allow.
const (
	// Execute includes reading, because the kernel also opens a program for reading.
	Execute = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	// Read allows reading a file. ReadTree allows reading and listing everything below a directory.
	Read     = unix.LANDLOCK_ACCESS_FS_READ_FILE
	ReadTree = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// Append allows creating, writing and removing files in a directory, and renaming them within it.
	Append = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	Remove = unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
)

// The interface versions that added rights other than files.
const (
	TCPSince   = 4
	ScopeSince = 6
)

// fileRights are the file rights by the interface version that added them.
var fileRights = []struct {
	since  int
	rights uint64
}{
	{1, unix.LANDLOCK_ACCESS_FS_EXECUTE<<13 - unix.LANDLOCK_ACCESS_FS_EXECUTE}, // the first 13
	{2, unix.LANDLOCK_ACCESS_FS_REFER},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
}

// AllFiles returns the file rights that a version can deny.
func AllFiles(version int) (rights uint64) {
	for _, f := range fileRights {
		if version >= f.since {
			rights |= f.rights
		}
	}
	return rights
}
