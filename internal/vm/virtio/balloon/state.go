package balloon

import "github.com/forkd/forkd/internal/vm/virtio"

// stateVersion is documented in docs/inside/formats/device-state.md.
const stateVersion = 1

// SaveState implements virtio.Device.
func (d *Device) SaveState() []byte {
	var w virtio.StateWriter
	w.U16(stateVersion)
	w.U32(d.actual.Load())
	return w.Bytes()
}

// RestoreState implements virtio.Device.
func (d *Device) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	r.Version(stateVersion)
	actual := r.U32()
	if err := r.Close(); err != nil {
		return err
	}
	d.actual.Store(actual)
	return nil
}
