package hostcap

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressOf returns the address of a mapping.
func addressOf(mem []byte) uintptr {
	// SAFETY: the address is passed to KVM as a number; the caller keeps the mapping until the VM is closed, and
	// it is outside of the Go heap.
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
}

// pagemapScan is PAGEMAP_SCAN of include/uapi/linux/fs.h: _IOWR('f', 16, struct pm_scan_arg).
const (
	pagemapScan     = 0xc0606610
	pagemapScanSize = 96
)

// hasPagemapScan reports whether the kernel supports the request (since 6.7).
func hasPagemapScan() bool {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return false
	}
	defer f.Close()
	arg := [pagemapScanSize / 8]uint64{0: pagemapScanSize}
	// SAFETY: the kernel reads and writes exactly the structure's 96 bytes; its
	// range and its result vector are empty.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
	return !errors.Is(errno, unix.ENOTTY) // any other error comes from the request itself
}

// hasUserfaultfd reports whether this user may create a userfaultfd.
func hasUserfaultfd() bool {
	const userModeOnly = 1 // UFFD_USER_MODE_ONLY
	// SAFETY: the call takes flags only and returns a new descriptor.
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return false
	}
	unix.Close(int(fd))
	return true
}
