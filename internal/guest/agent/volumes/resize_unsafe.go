//go:build linux

package volumes

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resizeFS is EXT4_IOC_RESIZE_FS, include/uapi/linux/ext4.h: _IOW('f', 16, __u64).
const resizeFS = 0x40086610

// resize grows a mounted file system.
func resize(dir *os.File, blocks uint64) error {
	// SAFETY: the kernel reads 8 bytes at the pointer, during the call.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resizeFS, uintptr(unsafe.Pointer(&blocks)))
	if errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}
