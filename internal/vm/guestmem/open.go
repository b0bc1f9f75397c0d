package guestmem

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/uffd"
)

// Kernel holds the files for queries about memory. A process receives them in advance if it cannot
// open them later, as in a jail.
type Kernel struct {
	Pagemap     *os.File // this process's /proc/self/pagemap; if nil, it is opened
	Userfaultfd *os.File // /dev/userfaultfd; if nil, the system call is used, which needs a privilege
}

// Use sets the files for queries. They stay the caller's. Use must be called before the memory is
// used.
func (m *Map) Use(k Kernel) { m.kernel = k }

// once holds a value, opened once and kept.
type once[T any] struct {
	opened bool
	value  T
	err    error
}

func (o *once[T]) get(open func() (T, error)) (T, error) {
	if !o.opened {
		o.value, o.err = open()
		o.opened = true
	}
	return o.value, o.err
}

// OpenTracking opens the files for page tracking in advance, for a process unable to open files
// later. Errors are returned at first use.
func (m *Map) OpenTracking() {
	m.openPagemap()
	m.openUFFD()
}

// openPagemap returns this process's pagemap. It stays the Map's.
func (m *Map) openPagemap() (*os.File, error) {
	return m.pagemap.get(func() (*os.File, error) {
		if m.kernel.Pagemap == nil {
			return os.Open("/proc/self/pagemap")
		}
		fd, err := unix.FcntlInt(m.kernel.Pagemap.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, os.NewSyscallError("duplicate the pagemap's descriptor", err)
		}
		return os.NewFile(uintptr(fd), m.kernel.Pagemap.Name()), nil
	})
}

func (m *Map) openUFFD() (*uffd.UFFD, error) {
	return m.uffd.get(func() (*uffd.UFFD, error) { return uffd.OpenAsyncWP(m.kernel.Userfaultfd) })
}

// closeTracking closes the opened files, which also unregisters a watched memory.
func (m *Map) closeTracking() {
	if f := m.pagemap.value; f != nil {
		f.Close()
	}
	if u := m.uffd.value; u != nil {
		u.Close()
	}
}
