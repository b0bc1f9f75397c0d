package rng

import "github.com/forkd/forkd/internal/vm/virtio"

// stateVersion is documented in docs/inside/formats/device-state.md.
const stateVersion = 1

// SaveState implements virtio.Device. The state is only a version.
func (d *Device) SaveState() []byte {
	var w virtio.StateWriter
	w.U16(stateVersion)
	return w.Bytes()
}

// RestoreState implements virtio.Device.
func (d *Device) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	r.Version(stateVersion)
	return r.Close()
}
