package live

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/pagedigest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// SaveDigest writes the hashes of a paused machine's memory and of its disks with an overlay file,
// as the guest would read them. It reads all memory, so all of its pages are mapped afterwards.
func (m *Machine) SaveDigest(f *os.File) error {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return err
	}
	defer m.mu.Unlock()
	w := pagedigest.NewWriter(f)
	w.Data(m.mem.Linear())
	for i, d := range m.disks.overlays {
		if err := w.Image(d, d.Size(), d.NextData); err != nil {
			return fmt.Errorf("digest disk %d: %w", i, err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write digests: %w", err)
	}
	return nil
}
