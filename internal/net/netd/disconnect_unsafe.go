package netd

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect dissolves a TCP connection (connect(2), AF_UNSPEC). The far end gets a reset, and
// readers of the socket get ECONNRESET.
func disconnect(fd int) error {
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	// SAFETY: the kernel reads the address during the call only, and no more than
	// the length that is given.
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd),
		uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	if errno != 0 {
		return errno
	}
	return nil
}
