package vsock

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// stateVersion is documented in docs/inside/formats/device-state.md.
const stateVersion = 1

// SaveState implements virtio.Device. Connections stay with this VM, which may continue. The state
// does not have them, and a transport reset informs the restored guest. The state has the next
// port: late packets of a saved connection must never be taken for a newer connection's.
func (d *Device) SaveState() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var w virtio.StateWriter
	w.U16(stateVersion)
	w.U64(d.cid)
	w.U32(d.nextPort)
	return w.Bytes()
}

// RestoreState implements virtio.Device. The guest keeps its address unless SetCID changes it.
func (d *Device) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	r.Version(stateVersion)
	cid, port := r.U64(), r.U32()
	if err := r.Close(); err != nil {
		return err
	}
	if cid < MinGuestCID || cid > 1<<32-2 || port < firstPort || port > lastPort {
		return fmt.Errorf("%w: socket address %d, next port %d", virtio.ErrBadState, cid, port)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cid, d.nextPort, d.reset.phase = cid, port, resetWanted
	return nil
}
