package guestmem

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/uffd"
)

// Kernel are files by which the kernel is asked about memory. A process that cannot open them
// when it needs them, as in a jail, is given them ahead.
type Kernel struct {
	Pagemap     *os.File // this process's /proc/self/pagemap; nil: it is opened
	Userfaultfd *os.File // /dev/userfaultfd; nil: by the system call, which takes a right
}

// Use has the memory ask the kernel by these files, which stay the caller's. It is called before
// the memory is used.
func (m *Map) Use(k Kernel) { m.kernel = k }

// openPagemap is the process's pagemap, for the caller to close.
func (m *Map) openPagemap() (*os.File, error) {
	if m.kernel.Pagemap == nil {
		return os.Open("/proc/self/pagemap")
	}
	fd, err := unix.FcntlInt(m.kernel.Pagemap.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("duplicate the pagemap's descriptor", err)
	}
	return os.NewFile(uintptr(fd), m.kernel.Pagemap.Name()), nil
}

func (m *Map) openUserfaultfd() (*uffd.UFFD, error) { return uffd.OpenAsyncWP(m.kernel.Userfaultfd) }
