package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// canStartInside reports whether processes can be started in a group: clone3(2) has
// CLONE_INTO_CGROUP, and is what some sandboxes for services answer ENOSYS to.
func canStartInside() error {
	// SAFETY: with a size of 0 the kernel refuses before it reads the arguments, and makes no process.
	_, _, err := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("clone3: %w: %w", ErrUnsupported, err)
}
