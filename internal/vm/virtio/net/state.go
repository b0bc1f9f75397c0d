package net

import (
	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/virtio"
)

// stateVersion is documented in docs/inside/formats/device-state.md.
const stateVersion = 1

// SaveState implements virtio.Device. The engine's half of the guest's flows stays with this VM.
// The state has the guest's open flows: a guest restored from it immediately learns of their end.
func (d *Device) SaveState() []byte {
	d.rx.mu.Lock()
	mac := d.rx.mac
	d.rx.mu.Unlock()
	var w virtio.StateWriter
	w.U16(stateVersion)
	for _, b := range mac {
		w.U8(b)
	}
	d.flows.Save(&w)
	return w.Bytes()
}

// RestoreState implements virtio.Device. Whether the network is open is not in the state: the
// restore decides again.
func (d *Device) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	r.Version(stateVersion)
	var mac [6]byte
	for i := range mac {
		mac[i] = r.U8()
	}
	r.Check(mac[0]&1 == 0 && mac != [6]byte{}, "hardware address is %x", mac)
	if err := d.flows.Restore(r); err != nil {
		return err
	}
	d.lock()
	defer d.unlock()
	d.rx.mac, d.tx.restored = mac, true
	return nil
}

// KeepMembers spares the connections to members of a private network from the reset. It follows RestoreState.
func (d *Device) KeepMembers() { d.flows.Keep(guestnet.Members4) }
