package guestmem

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// Discard returns whole pages at gpa to the host. A later read finds the mapped content: the
// file's, or zeros. The pages are then no longer private dirty pages, including for captures: a
// tracker's record of them is dropped. While the memory is retained, Discard does nothing. It may
// be called from any goroutine.
func (m *Map) Discard(gpa GPA, n int64) error {
	offset, ok := m.linearOffset(gpa, int(n))
	if !ok || n == 0 || (offset|n)%PageSize != 0 {
		return fmt.Errorf("discard %d bytes at %#x: %w", n, gpa, ErrOutside)
	}
	m.discarding.Lock()
	defer m.discarding.Unlock()
	if m.retained > 0 {
		return nil
	}
	m.unprotect(extent.Run{Offset: offset, Length: n})
	if err := unix.Madvise(m.Linear()[offset:offset+n], unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("discard %d bytes of guest memory at %d: %w", n, offset, err)
	}
	return nil
}

// unprotect makes the kernel forget the write-protection of a run's pages. For a page of a file it
// would keep the record after the page is gone, and PAGEMAP_SCAN treats the record like a
// swapped-out page: each capture would hold content already in its base. A failure has only this
// effect: the pages stay in protected.
func (m *Map) unprotect(run extent.Run) {
	if m.protected == nil {
		return
	}
	for r := range m.protected.Within(run) {
		if u, err := m.openUFFD(); err != nil || u.Unprotect(m.HostAddr(Region{Offset: r.Offset}), r.Length) != nil {
			return
		}
	}
	m.protected.Remove(run.Offset, run.Length)
}

// Retain disables Discard until release is called. When it returns, no Discard is in progress. A
// capture retains the memory from the first page it examines to its instant. Otherwise a page could
// be discarded after the capture copied it: its content would change without a write, so the
// tracker would not report it.
func (m *Map) Retain() (release func()) {
	m.retain(1)
	return func() { m.retain(-1) }
}

func (m *Map) retain(n int) {
	m.discarding.Lock()
	defer m.discarding.Unlock()
	m.retained += n
}
