package live

import (
	"os"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/virtio/net"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Network is the host's side of the network device. Its engine and what carries
// that are not known here.
type Network interface {
	// SetWire gives it its way to the host, in place of the one before. It owns
	// the file, whatever comes of it. Without one it refuses all flows at once.
	SetWire(f *os.File) error
	// NewEngine makes the other end of the guest's wire, when the guest sends its first frame.
	NewEngine(g net.Guest) net.Engine
	// Eager reports whether the engine is needed as soon as the guest is let out: the far side
	// may be the first to speak.
	Eager() bool
	// Close ends the way to the host. The engine is closed before.
	Close()
}

func (d *deviceSet) attachNet(i int, mem *guestmem.Map) {
	cfg := net.Config{MAC: [6]byte(guestnet.ParentMAC())} // a clone's agent sets another
	if d.host.Net != nil {
		cfg.NewEngine = d.host.Net.NewEngine
	}
	d.net = net.New(cfg)
	d.attach(i, d.net, mem)
}

// setWire owns the file, which may be nil: then nothing changes.
func (d *deviceSet) setWire(f *os.File) error {
	if f == nil {
		return nil
	}
	if d.host.Net == nil {
		return f.Close()
	}
	return d.host.Net.SetWire(f)
}

// letOut opens the network device. Before that no engine is made.
func (d *deviceSet) letOut() {
	d.net.Open()
	if d.host.Net != nil && d.host.Net.Eager() {
		d.net.Start()
	}
}

// openNet has the network device read what the guest sends, from now on.
func (d *deviceSet) openNet() {
	d.letOut()
	d.slots[d.netSlot()].transport.Poke()
}

// SetNet gives the machine's network another way to the host, as after a restart of
// what is at its other end. The file is the machine's, whatever comes of it.
func (m *Machine) SetNet(f *os.File) error {
	if err := m.lockIn(vmm.StatePrepared, vmm.StateArmed, vmm.StateRunning, vmm.StatePaused,
		vmm.StateStalled); err != nil {
		closeFiles([]*os.File{f})
		return err
	}
	defer m.mu.Unlock()
	return m.devices.setWire(f)
}

// OpenNet lets out what the guest sends. Until then a restored guest's frames wait in
// it: nothing of a clone is seen before it is unique. Opening it again changes nothing. The file is
// as for SetNet, if there is one; should it be no way to the network, nothing is opened.
func (m *Machine) OpenNet(f *os.File) error {
	if err := m.lockIn(vmm.StateArmed, vmm.StateRunning, vmm.StatePaused, vmm.StateStalled); err != nil {
		closeFiles([]*os.File{f})
		return err
	}
	defer m.mu.Unlock()
	if err := m.devices.setWire(f); err != nil {
		return err
	}
	m.devices.openNet()
	return nil
}
