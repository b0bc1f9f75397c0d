package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/forkd/forkd/internal/virtio"
	"github.com/forkd/forkd/internal/virtio/rng"
	"github.com/forkd/forkd/internal/virtio/vsock"
	"github.com/forkd/forkd/internal/vmspec"
)

// Queues per device type. Slots are the disks, then vsock, then rng.
const (
	blkQueues   = 1
	vsockQueues = 3
	rngQueues   = 1
)

// slotQueues is the number of queues of each device of a shape, in slot order.
func slotQueues(s vmspec.Shape) []int {
	var q []int
	for range s.Disks {
		q = append(q, blkQueues)
	}
	return append(q, vsockQueues, rngQueues)
}

// Host is the host's side of the socket device.
type Host struct {
	// Vsock takes host clients of guest ports in; nil: there are none. The machine closes it.
	Vsock net.Listener
	// Dial connects the guest to a port of the host; nil: it reaches none.
	Dial func(ctx context.Context, port uint32) (net.Conn, error)
}

// attachDevices puts devices into the slots. On error the caller closes the machine.
func (m *Machine) attachDevices(cid uint32) error {
	if len(m.disks) != m.shape.Disks {
		return fmt.Errorf("%d disks were given, the machine has %d", len(m.disks), m.shape.Disks)
	}
	for i, d := range m.disks {
		dev, err := m.newDisk(i, d)
		if err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
		m.attach(i, dev)
	}
	n := len(m.disks)
	m.attachVsock(n, cid)
	m.attach(n+1, rng.New(rand.Reader))
	return nil
}

func (m *Machine) attachVsock(i int, cid uint32) {
	cfg := vsock.Config{CID: uint64(cid)}
	if m.host.Dial != nil {
		cfg.Dialer = hostDialer(m.host.Dial)
	}
	dev := vsock.New(cfg)
	m.vsock = dev
	m.attach(i, dev)
	if m.host.Vsock == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stopVsock = cancel
	m.serveVsock = func() {
		if err := dev.Serve(ctx, m.host.Vsock); err != nil {
			m.warn(err)
		}
	}
}

// serve lets clients of guest ports in, from the first start on. It ends when
// the listener is closed; a client that comes before the guest's driver is up
// is turned away.
func (m *Machine) serve() {
	if m.serveVsock != nil {
		m.serving.Go(m.serveVsock)
		m.serveVsock = nil
	}
}

// hostDialer turns the control socket's way to dial into the device's.
type hostDialer func(ctx context.Context, port uint32) (net.Conn, error)

// DialHost implements vsock.Dialer.
func (f hostDialer) DialHost(ctx context.Context, port uint32) (vsock.Conn, error) {
	c, err := f(ctx, port)
	if err != nil {
		return nil, err
	}
	vc, ok := c.(vsock.Conn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("connection to host port %d has no descriptor", port)
	}
	return vc, nil
}

func (m *Machine) attach(i int, dev virtio.Device) {
	irq := m.slots[i].irq
	m.slots[i].transport = virtio.NewMMIO(virtio.Config{
		Device: dev, Memory: m.mem, Raise: func() { signal(irq) }, Kick: m.slots[i].kick,
		Fault: func(err error) { m.warn(fmt.Errorf("device %d: %w", i, err)) },
	})
}

func (m *Machine) pauseDevices() {
	for _, s := range m.slots {
		s.transport.Pause()
	}
}

func (m *Machine) resumeDevices() {
	for _, s := range m.slots {
		s.transport.Resume()
	}
}
