package live

import (
	"os"

	"golang.org/x/sys/unix"
)

// newEventFD makes a non-blocking eventfd, which KVM and Go's poller both take.
// It is a plain descriptor: os.File.Fd would make it blocking.
func newEventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return fd, os.NewSyscallError("eventfd", err)
}
