package live

import (
	"os"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/virtio/net"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Network is the host's side of the network device. The engine and its transport are up to the
// implementation.
type Network interface {
	// SetWire sets the wire to the host, replacing the previous one. It owns the file, also after
	// an error. Without a wire it refuses all flows immediately.
	SetWire(f *os.File) error
	// NewEngine creates the other end of the guest's link, when the guest sends its first frame.
	NewEngine(g net.Guest) net.Engine
	// Eager reports whether the engine is needed as soon as the network opens, because the far side
	// may speak first.
	Eager() bool
	// Wake sets the function to call when the far side begins to speak later.
	Wake(start func())
	// Close ends the connection to the host. The engine is closed before.
	Close()
}

func (d *deviceSet) attachNet(i int, mem *guestmem.Map) {
	cfg := net.Config{MAC: [6]byte(guestnet.ParentMAC())} // a clone's agent sets another
	if d.host.Net != nil {
		cfg.NewEngine = d.host.Net.NewEngine
	}
	d.net = net.New(cfg)
	if d.host.Net != nil {
		d.host.Net.Wake(d.net.Wake)
	}
	d.attach(i, d.net, mem)
}

// setWire owns the file. If the file is nil, it changes nothing.
func (d *deviceSet) setWire(f *os.File) error {
	if f == nil {
		return nil
	}
	if d.host.Net == nil {
		return f.Close()
	}
	return d.host.Net.SetWire(f)
}

// letOut opens the network device. No engine exists before.
func (d *deviceSet) letOut() {
	d.net.Open()
	if d.host.Net != nil && d.host.Net.Eager() {
		d.net.Start()
	}
}

// openNet makes the network device read the guest's frames from now on.
func (d *deviceSet) openNet() {
	d.letOut()
	d.slots[d.netSlot()].transport.Poke()
}

// SetNet replaces the machine's wire to the host, for example after forkd-net restarts. The machine
// owns the file, also after an error.
func (m *Machine) SetNet(f *os.File) error {
	if err := m.lockIn(vmm.StatePrepared, vmm.StateArmed, vmm.StateRunning, vmm.StatePaused,
		vmm.StateStalled); err != nil {
		closeFiles([]*os.File{f})
		return err
	}
	defer m.mu.Unlock()
	return m.devices.setWire(f)
}

// OpenNet opens the network for the guest's frames. Until then a restored guest's frames wait in
// it, so a clone sends nothing before it is unique. Opening it again has no effect. The file may be
// nil, and otherwise is used as by SetNet. If it is not a valid wire, the network stays closed.
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
