package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/net"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// fakeNetwork records a machine's calls, and is its engine as well.
type fakeNetwork struct {
	wires  []*os.File
	eager  bool
	err    error // of SetWire
	said   []string
	frames chan []byte
}

func newFakeNetwork() *fakeNetwork { return &fakeNetwork{frames: make(chan []byte, 16)} }

func (n *fakeNetwork) SetWire(f *os.File) error {
	n.wires = append(n.wires, f)
	return n.err
}

func (n *fakeNetwork) NewEngine(net.Guest) net.Engine {
	n.said = append(n.said, "engine")
	return fakeEngine{n}
}

func (n *fakeNetwork) Eager() bool { return n.eager }

func (*fakeNetwork) Wake(func()) {}

func (n *fakeNetwork) Close() { n.said = append(n.said, "closed") }

type fakeEngine struct{ n *fakeNetwork }

func (e fakeEngine) Transmit(_ net.Header, frame []byte) { e.n.frames <- bytes.Clone(frame) }
func (e fakeEngine) Writable()                           {}
func (e fakeEngine) Close()                              { e.n.said = append(e.n.said, "engine closed") }

// echoNetwork returns the guest's frames to it.
type echoNetwork struct{}

func (echoNetwork) SetWire(f *os.File) error         { return f.Close() }
func (echoNetwork) NewEngine(g net.Guest) net.Engine { return echoEngine{g} }
func (echoNetwork) Eager() bool                      { return false }
func (echoNetwork) Wake(func())                      {}
func (echoNetwork) Close()                           {}

type echoEngine struct{ guest net.Guest }

func (e echoEngine) Transmit(h net.Header, frame []byte) { e.guest.Receive(h, frame) }
func (echoEngine) Writable()                             {}
func (echoEngine) Close()                                {}

// slotted returns a machine with devices in its slots, but without KVM.
func slotted(t *testing.T, network Network) *Machine {
	t.Helper()
	m := newMachine(Config{Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: 1}, Host: Host{Net: network}})
	var err error
	m.mem, err = guestmem.Reserve(m.shape.MemoryBytes())
	checkOK(t, err)
	t.Cleanup(func() { m.mem.Close() })
	checkOK(t, m.mem.MapAnonymous())
	m.devices.uart = serial.New(nil, func() {})
	for range slotQueues(m.shape) {
		kick, err := newEventFD()
		checkOK(t, err)
		m.devices.slots = append(m.devices.slots, slot{kick: os.NewFile(uintptr(kick), "kick")})
	}
	m.devices.pulse, m.devices.lines = func(uint32) error { return nil }, bootLines(len(m.devices.slots))
	t.Cleanup(m.devices.close)
	checkOK(t, m.devices.fill(&m.disks, 3, m.mem))
	return m
}

// Every device of every shape has its own interrupt line and window.
func TestThereIsAPlaceForEveryDevice(t *testing.T) {
	if n := len(slotQueues(vmspec.Shape{Disks: vmspec.MaxDisks})); n != vmspec.MaxDisks+4 || n > boot.MaxMMIO {
		t.Errorf("%d devices, and room for %d", n, boot.MaxMMIO)
	}
	m := slotted(t, nil)
	for i, n := range slotQueues(m.shape) {
		if got := m.devices.slots[i].transport.Queues(); got != n {
			t.Errorf("slot %d has %d queues, and a place for %d", i, got, n)
		}
		balloon := m.devices.slots[i].transport.Device().Type() == virtio.TypeBalloon
		if has := hasDoorbell(m.shape)[i]; has == balloon {
			t.Errorf("slot %d has a doorbell: %v; the balloon's alone has none", i, has)
		}
	}
}

// sendFrame makes a guest's driver send a frame through the machine's network device.
func sendFrame(t *testing.T, m *Machine, frame []byte) {
	t.Helper()
	const desc, avail, used, data = 0x10000, 0x11000, 0x12000, 0x13000
	tr := m.devices.slots[m.devices.netSlot()].transport
	write := func(reg uint64, v uint32) {
		tr.WriteMMIO(reg, binary.LittleEndian.AppendUint32(nil, v))
	}
	put := func(at uint64, b []byte) { checkOK(t, m.mem.WriteAt(b, at)) }
	le := binary.LittleEndian
	write(regStatus, 0)
	write(regStatus, 1)
	write(regStatus, 3)
	write(regDriverFeaturesSel, 1)
	write(regDriverFeatures, featVersion1>>32)
	write(regStatus, statusStarted)
	write(regQueueSel, 1)
	write(regQueueSize, 8)
	write(regQueueDesc, desc)
	write(regQueueDriver, avail)
	write(regQueueDevice, used)
	write(regQueueReady, 1)
	put(data, append(make([]byte, net.HeaderSize), frame...))
	d := le.AppendUint64(nil, data)
	d = le.AppendUint32(d, uint32(net.HeaderSize+len(frame)))
	put(desc, le.AppendUint32(d, 0))
	put(avail, []byte{0, 0, 1, 0, 0, 0})
	write(regStatus, statusDriverOK)
	write(regQueueNotify, 1)
}

func TestARestoredGuestsFramesWaitUntilItsNetworkIsOpened(t *testing.T) {
	n := newFakeNetwork()
	m := slotted(t, n)
	frame := bytes.Repeat([]byte{2}, 60)
	sendFrame(t, m, frame)
	for _, s := range []vmm.State{vmm.StateShell, vmm.StatePrepared, vmm.StateExited} {
		m.state = s
		if err := m.OpenNet(nil); !errors.Is(err, vmm.ErrState) {
			t.Errorf("opened while it is %s: %v", s, err)
		}
	}
	if len(n.frames) != 0 {
		t.Fatal("a frame is out")
	}
	m.state = vmm.StateRunning
	checkOK(t, m.OpenNet(nil))
	checkOK(t, m.OpenNet(nil))
	if got := <-n.frames; !bytes.Equal(got, frame) {
		t.Errorf("got % x", got)
	}
	m.devices.close()
	if len(n.said) != 3 || n.said[0] != "engine" || n.said[1] != "engine closed" || n.said[2] != "closed" {
		t.Errorf("said %q", n.said)
	}
	n.said = nil
}

// Some networks speak first, but only to a guest that is unique.
func TestAnEagerNetworksEngineIsMadeWhenTheGuestIsLetOut(t *testing.T) {
	n := newFakeNetwork()
	n.eager = true
	m := slotted(t, n)
	if len(n.said) != 0 {
		t.Errorf("said %q before", n.said)
	}
	m.state = vmm.StateRunning
	checkOK(t, m.OpenNet(nil))
	checkOK(t, m.OpenNet(nil))
	if len(n.said) != 1 || n.said[0] != "engine" {
		t.Errorf("said %q", n.said)
	}
	m.devices.close()
	n.said = nil
}

func TestTheWireIsTheMachines(t *testing.T) {
	n := newFakeNetwork()
	m := newMachine(Config{Host: Host{Net: n}})
	m.state = vmm.StateExited
	for what, do := range map[string]func(f *os.File) error{
		"boot":    func(f *os.File) error { return m.Boot(vmm.BootConfig{Net: f}) },
		"restore": func(f *os.File) error { _, err := m.Restore(vmm.RestoreConfig{Net: f}); return err },
		"net":     m.SetNet,
		"open":    m.OpenNet,
	} {
		f := rebaseFile(t, nil)
		if err := do(f); !errors.Is(err, vmm.ErrState) || !isClosed(f) {
			t.Errorf("%s: %v, closed %v", what, err, isClosed(f))
		}
	}
	m.state = vmm.StateRunning
	first, second := rebaseFile(t, nil), rebaseFile(t, nil)
	checkOK(t, m.SetNet(first))
	n.err = os.ErrInvalid
	if err := m.SetNet(second); err != n.err || len(n.wires) != 2 || n.wires[0] != first || n.wires[1] != second {
		t.Errorf("%v, wires %v", err, n.wires)
	}
	opened := slotted(t, newFakeNetwork())
	opened.state = vmm.StateRunning
	third := rebaseFile(t, nil)
	checkOK(t, opened.OpenNet(third))
	if on := opened.devices.host.Net.(*fakeNetwork); len(on.wires) != 1 || on.wires[0] != third {
		t.Errorf("opened with a wire: %v", on.wires)
	}
	m.devices.host.Net = nil
	f := rebaseFile(t, nil)
	if err := m.SetNet(f); err != nil || !isClosed(f) {
		t.Errorf("without a network: %v, closed %v", err, isClosed(f))
	}
}

// A guest saved by a build without the balloon, or also without the network device, continues
// without them.
func TestStatesOlderThanADevice(t *testing.T) {
	m := slotted(t, nil)
	m.devices.pause()
	var w vmstate.Writer
	checkOK(t, m.devices.save(&w))
	st, err := vmstate.Decode(w.Bytes())
	checkOK(t, err)
	checkOK(t, slotted(t, nil).devices.restore(st))
	const network, balloon = 2, 3 // slots
	old := func(without ...int) *vmstate.State {
		var w vmstate.Writer
		for _, name := range []string{secSerial, secVirtio(0), secVirtio(1), secVirtio(network), secVirtio(balloon)} {
			version := uint32(virtioVersion)
			if name == secSerial {
				version = serial.StateVersion
			}
			b, err := st.Section(name, version)
			checkOK(t, err)
			if !slices.ContainsFunc(without, func(i int) bool { return name == secVirtio(i) }) {
				w.Add(name, version, b)
			}
		}
		st, err := vmstate.Decode(w.Bytes())
		checkOK(t, err)
		return st
	}
	for _, without := range [][]int{{balloon}, {network, balloon}} {
		n := newFakeNetwork()
		child := slotted(t, n)
		checkOK(t, child.devices.restore(old(without...)))
		child.devices.resume()
		child.state = vmm.StateRunning
		checkOK(t, child.OpenNet(nil))
		sendFrame(t, child, make([]byte, 60)) // if the guest finds it nevertheless, it works
		<-n.frames
	}
	if err := slotted(t, nil).devices.restore(old(0)); !errors.Is(err, vmstate.ErrMissing) {
		t.Errorf("without another device's section: %v", err)
	}
}
