package live

import (
	"os"

	"golang.org/x/sys/unix"
)

// newEventFD returns a non-blocking eventfd, suitable for KVM and for Go's poller. It is a plain
// descriptor because os.File.Fd would make it blocking.
func newEventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return fd, os.NewSyscallError("eventfd", err)
}
