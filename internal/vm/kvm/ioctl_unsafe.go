package kvm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const kvmio = 0xAE

// Direction bits of an ioctl request (asm-generic/ioctl.h).
const (
	iocWrite = 1
	iocRead  = 2
)

func ioc(dir, nr, size uintptr) uintptr { return dir<<30 | size<<16 | kvmio<<8 | nr }

// ioctl retries on EINTR: no call made through it may be left half done. It must not grow the
// stack, because arg may be the address of a value on the stack, and such a number would not be
// adjusted.
//
//go:nosplit
func ioctl(fd int, req, arg uintptr) (uintptr, error) {
	for {
		// SAFETY: arg is a number, or a pointer that ioctlPtr and ioctlVar keep alive.
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, arg)
		switch errno {
		case 0:
			return r, nil
		case unix.EINTR:
			continue
		default:
			return 0, errno
		}
	}
}

// ioctlPtr passes a structure of a fixed size to the kernel, which reads or
// writes exactly unsafe.Sizeof(*arg) bytes.
func ioctlPtr[T any](fd int, dir, nr uintptr, arg *T) error {
	// SAFETY: arg stays alive and in place for the call; the size in the request is T's.
	_, err := ioctl(fd, ioc(dir, nr, unsafe.Sizeof(*arg)), uintptr(unsafe.Pointer(arg)))
	return err
}

// ioctlVar passes a header followed by an array. The request carries only the header's size
// (kvm_cpuid2, kvm_msrs, kvm_msr_list).
func ioctlVar(fd int, dir, nr, headerSize uintptr, buf []byte) (uintptr, error) {
	// SAFETY: buf holds the header and as many elements as the header announces; callers size it so.
	return ioctl(fd, ioc(dir, nr, headerSize), uintptr(unsafe.Pointer(&buf[0])))
}
