// Package fusefs finds the files of FUSE file systems. The daemon and the VMM call it for layers: content that has not
// arrived is served through FUSE (internal/images/fetcher), so reads of such a file can wait for a network, or fail.
package fusefs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Has reports whether an open file lies on a FUSE file system. An error counts as yes, because its process may have
// ended.
func Has(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type == unix.FUSE_SUPER_MAGIC
}
