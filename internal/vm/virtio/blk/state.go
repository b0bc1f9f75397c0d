package blk

import (
	"bytes"
	"fmt"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// stateVersion is documented in docs/inside/formats/device-state.md.
const stateVersion = 1

// SaveState implements virtio.Device. The device has no state of its own; the saved values let a
// restore refuse another disk.
func (d *Device) SaveState() []byte {
	var w virtio.StateWriter
	w.U16(stateVersion)
	b := d.backing.Load()
	w.U64(b.sectors)
	w.Bool(b.readOnly)
	w.Blob(d.id[:])
	return w.Bytes()
}

// RestoreState implements virtio.Device.
func (d *Device) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	r.Version(stateVersion)
	sectors, readOnly, id := r.U64(), r.Bool(), r.Blob()
	if err := r.Close(); err != nil {
		return err
	}
	own := d.backing.Load()
	switch {
	case sectors != own.sectors:
		return fmt.Errorf("%w: disk had %d sectors, this has %d", virtio.ErrBadState, sectors, own.sectors)
	case readOnly != own.readOnly:
		return fmt.Errorf("%w: disk was read-only: %v, this is: %v", virtio.ErrBadState, readOnly, own.readOnly)
	case len(id) != idSize:
		return fmt.Errorf("%w: disk id of %d bytes", virtio.ErrBadState, len(id))
	}
	if !bytes.Equal(id, d.id[:]) {
		copy(d.id[:], id) // the guest may have built names from it
	}
	return nil
}
