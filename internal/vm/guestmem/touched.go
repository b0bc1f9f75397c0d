package guestmem

import (
	"encoding/binary"
	"fmt"
)

// Bits of a word of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagemapPresent = 1 << 63
	pagemapSwapped = 1 << 62
)

// Touched calls fn for runs of possibly non-zero memory, in ascending order. Of fresh anonymous
// memory it reports the populated pages; mapped files are reported whole. The memory must not
// change meanwhile.
func (m *Map) Touched(fn func(offset, length int64) error) error {
	if m.filed {
		return fn(0, m.size)
	}
	f, err := m.openPagemap()
	if err != nil {
		return fmt.Errorf("find touched pages: %w", err)
	}
	var run, length int64
	flush := func() error {
		if length == 0 {
			return nil
		}
		defer func() { length = 0 }()
		return fn(run, length)
	}
	buf := make([]byte, 64<<10)
	for off := int64(0); off < m.size; {
		n := min(int64(len(buf)), (m.size-off)/PageSize*8)
		if _, err := f.ReadAt(buf[:n], int64(m.HostAddr(Region{Offset: off}))/PageSize*8); err != nil {
			return fmt.Errorf("find touched pages: %w", err)
		}
		for i := int64(0); i < n; i += 8 {
			if binary.LittleEndian.Uint64(buf[i:])&(pagemapPresent|pagemapSwapped) == 0 {
				if err := flush(); err != nil {
					return err
				}
			} else {
				if length == 0 {
					run = off
				}
				length += PageSize
			}
			off += PageSize
		}
	}
	return flush()
}
