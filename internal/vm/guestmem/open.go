package guestmem

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/uffd"
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

// once is something that is opened once and kept.
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

// OpenTracking opens ahead all that telling pages apart needs, for a process that can open
// nothing later. What cannot be opened is said when it is used.
func (m *Map) OpenTracking() {
	m.openPagemap()
	m.openUFFD()
}

// openPagemap is this process's pagemap. It stays the Map's.
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

// closeTracking closes what was opened, which undoes the registration of a watched memory.
func (m *Map) closeTracking() {
	if f := m.pagemap.value; f != nil {
		f.Close()
	}
	if u := m.uffd.value; u != nil {
		u.Close()
	}
}
