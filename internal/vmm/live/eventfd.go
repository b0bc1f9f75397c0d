package live

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// newEventFD makes a non-blocking eventfd, which KVM and Go's poller both take.
// It is a plain descriptor: os.File.Fd would make it blocking.
func newEventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return fd, os.NewSyscallError("eventfd", err)
}

var eventOne = binary.NativeEndian.AppendUint64(nil, 1)

// signal adds one to an eventfd. It fails only when 2^64 signals are unread or
// the VM is being closed: the receiver has been told already, or is gone.
func signal(fd int) { _, _ = unix.Write(fd, eventOne) }
