package guestmem

import (
	"os"

	"github.com/forkd/forkd/internal/uffd"
)

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
	return m.pagemap.get(func() (*os.File, error) { return os.Open("/proc/self/pagemap") })
}

func (m *Map) openUFFD() (*uffd.UFFD, error) { return m.uffd.get(uffd.OpenAsyncWP) }

// closeTracking closes what was opened, which undoes the registration of a watched memory.
func (m *Map) closeTracking() {
	if f := m.pagemap.value; f != nil {
		f.Close()
	}
	if u := m.uffd.value; u != nil {
		u.Close()
	}
}
