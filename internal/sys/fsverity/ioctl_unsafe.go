package fsverity

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enableArg is struct fsverity_enable_arg (include/uapi/linux/fsverity.h).
type enableArg struct {
	version       uint32 // 1
	hashAlgorithm uint32
	blockSize     uint32
	saltSize      uint32
	saltPtr       uint64
	sigSize       uint32
	_             uint32
	sigPtr        uint64
	_             [11]uint64
}

const sha256 = 1 // FS_VERITY_HASH_ALG_SHA256

func enable(fd int) error {
	arg := enableArg{version: 1, hashAlgorithm: sha256, blockSize: uint32(os.Getpagesize())}
	// SAFETY: the kernel reads the structure during the call only; it holds no pointers.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_ENABLE_VERITY, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}
