package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// canStartInside returns an error if processes cannot be started in a group. This needs CLONE_INTO_CGROUP and
// therefore clone3(2). Some sandboxes for services answer clone3 with ENOSYS.
func canStartInside() error {
	// SAFETY: with a size of 0 the kernel returns an error before it reads the arguments, and creates no process.
	_, _, err := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("clone3: %w: %w", ErrUnsupported, err)
}
