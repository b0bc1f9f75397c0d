package uffd

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers from include/uapi/linux/userfaultfd.h.
const (
	apiVersion     = 0xaa
	featureWPAsync = 1 << 15
	modeWP         = 1 << 1

	reqNew      = 0xaa00     // _IO(0xAA, 0x00), of /dev/userfaultfd
	reqAPI      = 0xc018aa3f // _IOWR(0xAA, 0x3F, struct uffdio_api)
	reqRegister = 0xc020aa00 // _IOWR(0xAA, 0x00, struct uffdio_register)
	reqProtect  = 0xc018aa06 // _IOWR(0xAA, 0x06, struct uffdio_writeprotect)
)

type uffdioAPI struct{ api, features, ioctls uint64 }

type uffdioProtect struct{ start, length, mode uint64 }

type uffdioRegister struct{ start, length, mode, ioctls uint64 }

func open() (int, error) {
	// SAFETY: the call takes flags only.
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// openBy opens a userfaultfd through a device, which any process that has the device open may do.
func openBy(device uintptr) (int, error) {
	// SAFETY: the request takes flags only.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, device, reqNew, unix.O_CLOEXEC|unix.O_NONBLOCK)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (u *UFFD) api(features uint64) error {
	arg := uffdioAPI{api: apiVersion, features: features}
	// SAFETY: arg is the structure with the size in the request, and lives through the call.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(u.fd), reqAPI, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (u *UFFD) register(addr uintptr, length int64, mode uint64) error {
	arg := uffdioRegister{start: uint64(addr), length: uint64(length), mode: mode}
	// SAFETY: arg is the structure with the size in the request, and lives through the call; addr is only a
	// number, and registering changes no memory.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(u.fd), reqRegister, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (u *UFFD) protect(addr uintptr, length int64, mode uint64) error {
	arg := uffdioProtect{start: uint64(addr), length: uint64(length), mode: mode}
	// SAFETY: arg is the structure with the size in the request, and lives through the call; addr is only a
	// number, and protection changes no memory.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(u.fd), reqProtect, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}
