package guestmem

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// Discard gives whole pages at gpa back to the host. What is read there afterwards is what was
// mapped: the file's content, or zeros. It is then no page of the memory's own, for captures neither:
// what a tracker knows of it is forgotten with it. While somebody retains the memory it does nothing.
// It may be called from any goroutine.
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

// unprotect has the kernel forget that pages of a run were write-protected. Of a page of a file it
// would keep that after the page is gone, and PAGEMAP_SCAN takes what it keeps for a page that is
// swapped out: each capture would hold what its base has there already. Should it fail, that is all
// that comes of it: the pages stay in protected.
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

// Retain keeps the memory as it is but for what is written to it, until release is called: when it
// returns, no Discard is under way. A capture needs that, from the first page that it looks at to
// the instant that it shows. A page that it has copied and that is discarded then is not written,
// so that the tracker would not tell of it, and reads as something else.
func (m *Map) Retain() (release func()) {
	m.retain(1)
	return func() { m.retain(-1) }
}

func (m *Map) retain(n int) {
	m.discarding.Lock()
	defer m.discarding.Unlock()
	m.retained += n
}
