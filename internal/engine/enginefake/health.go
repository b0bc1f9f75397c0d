package enginefake

import (
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// RoomFile is the file in a VM's run directory that ends a lack of disk space.
const RoomFile = "room"

// setDisks reports the health of the disks, like a VMM.
func (f *fake) setDisks(change func(*vmm.Health)) {
	f.mu.Lock()
	change(&f.st.Health)
	f.st.Health.Seq++
	h := f.st.Health
	f.mu.Unlock()
	f.server.SendHealth(h)
}

// fill stalls the VM until there is disk space.
func (f *fake) fill() {
	f.setDisks(func(h *vmm.Health) { h.Full = "disk 1: write 4096 bytes at 0: no space left on device" })
	go func() {
		for {
			if os.Remove(filepath.Join(f.dir, RoomFile)) == nil {
				f.setDisks(func(h *vmm.Health) { h.Full = "" })
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
}
