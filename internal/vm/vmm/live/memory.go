package live

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// zeroPage is used for comparison and never written.
var zeroPage [guestmem.PageSize]byte

// SaveMemory writes the memory of a paused machine to f in linear order from its current position
// on, leaving holes for zero pages. It returns the number of bytes written. f then ends where the
// memory ends.
func (m *Machine) SaveMemory(f *os.File) (written int64, err error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	start, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		err = f.Truncate(start + m.mem.Size())
	}
	if err != nil {
		return 0, fmt.Errorf("size memory file: %w", err)
	}
	err = m.mem.Touched(func(offset, length int64) error {
		n, err := writeRuns(f, m.mem.Linear()[offset:offset+length], start+offset)
		written += n
		return err
	})
	return written, err
}

// writeRuns writes the runs of non-zero pages of b at offset.
func writeRuns(f *os.File, b []byte, offset int64) (written int64, err error) {
	const page = guestmem.PageSize
	const maxRun = 1 << 20 // one write; bounds each piece of the kernel's work
	for at := 0; at < len(b); {
		if bytes.Equal(b[at:at+page], zeroPage[:]) {
			at += page
			continue
		}
		end := at + page
		for end < len(b) && end-at < maxRun && !bytes.Equal(b[end:end+page], zeroPage[:]) {
			end += page
		}
		if _, err := f.WriteAt(b[at:end], offset+int64(at)); err != nil {
			return written, fmt.Errorf("write memory at %d: %w", offset+int64(at), err)
		}
		written += int64(end - at)
		at = end
	}
	return written, nil
}
