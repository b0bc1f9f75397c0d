package peercred

import (
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the kernel's limit for the groups of a process: NGROUPS_MAX.
const maxGroups = 65536

// inGroups reports whether the peer of a Unix socket had a supplementary group when it
// connected. It returns false if the kernel cannot tell.
func inGroups(fd int, group uint32) bool {
	for n := 64; n <= maxGroups; n *= 32 {
		groups := make([]uint32, n)
		size := uint32(n * 4)
		// SAFETY: the kernel writes at most size bytes, the size of groups, and stores the used size.
		_, _, err := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case err == 0:
			return slices.Contains(groups[:min(int(size/4), n)], group)
		case !errors.Is(err, unix.ERANGE):
			return false
		}
	}
	return false
}
