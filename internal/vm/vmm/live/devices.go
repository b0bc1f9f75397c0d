package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/virtio"
	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"github.com/forkd/forkd/internal/vm/virtio/rng"
	"github.com/forkd/forkd/internal/vm/virtio/vsock"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Queues per device type. The slot order is disks, vsock, rng, net, balloon, slots for volumes.
const (
	blkQueues     = 1
	vsockQueues   = 3
	rngQueues     = 1
	netQueues     = 3
	balloonQueues = 5
)

// fixedQueues are the queues of the devices of every shape.
var fixedQueues = [...]int{vsockQueues, rngQueues, netQueues, balloonQueues}

// slotQueues returns the number of queues of each device of a shape, in slot order.
func slotQueues(s vmspec.Shape) []int {
	var q []int
	for range s.Disks {
		q = append(q, blkQueues)
	}
	q = append(q, fixedQueues[:]...)
	for range s.Slots {
		q = append(q, blkQueues)
	}
	return q
}

// hasDoorbell reports, for each device of a shape, whether it has an ioeventfd. The balloon has
// none: a guest notifies it every two seconds at most. Such an exit costs less than a registration
// in every shell, for which the kernel waits until no CPU uses the VM's buses (synchronize_srcu).
// The same holds for volumes, which few sandboxes have.
func hasDoorbell(s vmspec.Shape) []bool {
	has := make([]bool, len(slotQueues(s)))
	for i := range len(has) - 1 - s.Slots {
		has[i] = true
	}
	return has
}

// Host holds the host's side of the devices.
type Host struct {
	// Vsock accepts host clients of guest ports. If nil, clients are not served. The machine closes
	// it.
	Vsock net.Listener
	// Dial connects the guest to a port of the host. If nil, the guest reaches no port.
	Dial func(ctx context.Context, port uint32) (net.Conn, error)
	// Net is the other end of the guest's network. If nil, the guest's frames are not read. The
	// machine closes it.
	Net Network
}

// deviceSet holds the devices on the guest's buses. Its slots exist from the shell on.
type deviceSet struct {
	// Set by New and constant afterwards.
	pulse func(line uint32) error // raises an interrupt line and lowers it
	uart  *serial.UART
	slots []slot // virtio devices, in the order of their addresses
	spare int    // number of slots for volumes, the last ones
	host  Host   // the host's side of the devices
	warn  func(error)

	// Set by Boot or Restore, before any vCPU runs.
	lines      lines
	vsock      *vsock.Device
	net        *virtionet.Device
	serveVsock func()         // serves clients of guest ports; nil once serve has called it
	stopVsock  func()         // ends the vsock device's clients; may be nil
	serving    sync.WaitGroup // serveVsock, and the work after a gated start
}

// slot is the place of a virtio device. Its doorbell exists from the shell on, its device from Boot
// or Restore on.
type slot struct {
	kick      *os.File // ioeventfd
	transport *virtio.MMIO
}

// raiser returns a function to interrupt the guest directly. An irqfd would need a kernel worker,
// with two task switches per interrupt, and the kernel would wait for the worker at the VM's end.
//
// A pulse is completed before the next begins. Raising the line while another thread's pulse holds
// it high is no new interrupt, even if the guest has answered the pulse already.
func (d *deviceSet) raiser(line uint32) (raise func()) {
	var pulsing sync.Mutex
	return func() {
		pulsing.Lock()
		defer pulsing.Unlock()
		if err := d.pulse(line); err != nil {
			d.warn(err)
		}
	}
}

// attachSlots creates the slots, and registers the doorbells of devices with one.
func (d *deviceSet) attachSlots(vm *kvm.VM, doorbells []bool, u *undo.Stack) error {
	for i, has := range doorbells {
		fd, err := newEventFD()
		if err != nil {
			return err
		}
		kick := os.NewFile(uintptr(fd), "kick")
		u.Push(func() { kick.Close() })
		if has {
			if err := vm.IOEventFD(fd, boot.MMIOAddr(i)+virtio.QueueNotifyOffset); err != nil {
				return err
			}
		}
		d.slots = append(d.slots, slot{kick: kick})
	}
	return nil
}

// fill puts devices into the slots. On error the caller closes the machine.
func (d *deviceSet) fill(disks *diskSet, cid uint32, mem *guestmem.Map) error {
	n := len(d.slots) - d.spare - len(fixedQueues)
	if len(disks.all) < n || len(disks.all) > n+d.spare {
		return fmt.Errorf("%d disks were given, the machine has %d and room for %d volumes", len(disks.all), n, d.spare)
	}
	for i := range n {
		dev, err := disks.device(i)
		if err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
		d.attach(i, dev, mem)
	}
	if err := d.fillSlots(disks, n, mem); err != nil {
		return err
	}
	d.attachVsock(n, cid, mem)
	d.attach(n+1, rng.New(rand.Reader), mem)
	d.attachNet(d.netSlot(), mem)
	d.attachBalloon(mem)
	return nil
}

// netSlot returns the network device's slot. The balloon's follows it.
func (d *deviceSet) netSlot() int { return len(d.slots) - d.spare - 2 }

func (d *deviceSet) attachVsock(i int, cid uint32, mem *guestmem.Map) {
	cfg := vsock.Config{CID: uint64(cid)}
	if d.host.Dial != nil {
		cfg.Dialer = hostDialer(d.host.Dial)
	}
	dev := vsock.New(cfg)
	d.vsock = dev
	d.attach(i, dev, mem)
	if d.host.Vsock == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stopVsock = cancel
	d.serveVsock = func() {
		if err := dev.Serve(ctx, d.host.Vsock); err != nil {
			d.warn(err)
		}
	}
}

// serve accepts clients of guest ports, from the first start on. It ends when the listener is
// closed. Clients are refused until the guest's driver is up.
func (d *deviceSet) serve() {
	if d.serveVsock != nil {
		d.serving.Go(d.serveVsock)
		d.serveVsock = nil
	}
}

// hostDialer adapts the control socket's dial function to the device's Dialer.
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

func (d *deviceSet) attach(i int, dev virtio.Device, mem *guestmem.Map) {
	d.slots[i].transport = virtio.NewMMIO(virtio.Config{
		Device: dev, Memory: mem, Raise: d.raiser(d.lines[i]), Kick: d.slots[i].kick, Lazy: i >= len(d.slots)-d.spare,
		Fault: func(err error) { d.warn(fmt.Errorf("device %d: %w", i, err)) },
	})
}

func (d *deviceSet) pause() {
	for _, s := range d.slots {
		s.transport.Pause()
	}
}

func (d *deviceSet) resume() {
	for _, s := range d.slots {
		s.transport.Resume()
	}
}

// save adds the devices' sections, in the order of a restore.
func (d *deviceSet) save(w *vmstate.Writer) error {
	w.Add(secSerial, serial.StateVersion, d.uart.SaveState())
	for i, s := range d.slots {
		b, err := s.transport.Save()
		if err != nil {
			return fmt.Errorf("save device %d: %w", i, err)
		}
		w.Add(secVirtio(i), virtioVersion, b)
	}
	return nil
}

func (d *deviceSet) restore(st *vmstate.State) error {
	b, err := st.Section(secSerial, serial.StateVersion)
	if err != nil {
		return err
	}
	if err := d.uart.RestoreState(b); err != nil {
		return fmt.Errorf("restore serial console: %w", err)
	}
	for i, s := range d.slots {
		if i >= d.netSlot() && !st.Has(secVirtio(i)) {
			s.transport.Pause() // like the restored devices
			continue            // the guest is older than the device, and does not know it
		}
		if b, err = st.Section(secVirtio(i), virtioVersion); err != nil {
			return err
		}
		if err := s.transport.Restore(b); err != nil {
			return fmt.Errorf("restore device %d: %w", i, err)
		}
	}
	return nil
}

// close ends the devices and their goroutines. All vCPUs have stopped.
func (d *deviceSet) close() {
	if d.stopVsock != nil {
		d.stopVsock()
	}
	if d.host.Vsock != nil {
		d.host.Vsock.Close()
	}
	d.serving.Wait()
	for i, s := range d.slots {
		if s.transport != nil {
			s.transport.Close() // and its kick
		} else {
			s.kick.Close()
		}
		d.slots[i].transport = nil
	}
	if d.host.Net != nil {
		d.host.Net.Close()
	}
}
