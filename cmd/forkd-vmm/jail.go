package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// kernelFiles opens files now, because a jailed VMM cannot reach them later. It closes the
// descriptor of /proc, so no descriptor refers to a directory afterwards.
func kernelFiles(s wire.Start) (k guestmem.Kernel, err error) {
	if s.Userfaultfd {
		unix.CloseOnExec(wire.FDUserfaultfd)
		k.Userfaultfd = os.NewFile(wire.FDUserfaultfd, "/dev/userfaultfd")
	}
	if !s.Proc {
		return k, nil
	}
	fd, err := unix.Openat(wire.FDProc, "pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	unix.Close(wire.FDProc)
	if err != nil {
		return k, fmt.Errorf("open pagemap: %w", err)
	}
	k.Pagemap = os.NewFile(uintptr(fd), "/proc/self/pagemap")
	return k, nil
}
