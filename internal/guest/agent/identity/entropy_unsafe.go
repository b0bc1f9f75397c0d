package identity

import (
	"encoding/binary"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addEntropy feeds seed to the kernel's generator and credits all its bits.
func addEntropy(f *os.File, seed []byte) error {
	// struct rand_pool_info: credited bits, number of bytes (random(4)).
	info := binary.NativeEndian.AppendUint32(nil, uint32(len(seed)*8))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(seed)))
	info = append(info, seed...)
	// SAFETY: the kernel reads the 8 bytes of the header and as many as it
	// announces, which is the slice's length; KeepAlive holds it until then.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0])))
	runtime.KeepAlive(info)
	if errno != 0 {
		return errno
	}
	return nil
}
