package live

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/boot"
	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/kvm"
	"github.com/forkd/forkd/internal/overlay"
	"github.com/forkd/forkd/internal/serial"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/virtio"
	"github.com/forkd/forkd/internal/virtio/vsock"
	"github.com/forkd/forkd/internal/vmm"
	"github.com/forkd/forkd/internal/vmspec"
)

// Config is what a shell is made from. The machine takes Console and Host over.
type Config struct {
	KVM     *kvm.System
	Shape   vmspec.Shape
	Console *serial.Log
	Host    Host
	// OnExit is called once, from a goroutine of its own, when the guest has ended by itself.
	OnExit func(vmm.Exit)
	// OnDisk hears when a disk finds no room or some again, or has lost a write, from a goroutine
	// of its own. It may be nil.
	OnDisk func(vmm.DiskHealth)
	// Warn hears what went wrong without ending the guest, at most maxWarnings times: much of
	// it is the guest's doing. It may be nil and must not call back.
	Warn func(error)
}

const maxWarnings = 100

// Machine is a live VM.
type Machine struct {
	// What New makes, and nothing changes.
	shape        vmspec.Shape     // memory, vCPUs and devices
	hostCPU      []kvm.CPUIDEntry // what this host can give
	msrs         []uint32         // what makes up a vCPU's state here
	hasTSCOffset bool             // the host's kernel takes time-stamp counters as offsets
	fresh        []kvm.MSR        // values of a vCPU that never ran
	vm           *kvm.VM
	mem          *guestmem.Map
	vcpus        []*vcpu
	console      *serial.Log
	uart         *serial.UART
	fds          []int // eventfds that Close closes
	host         Host  // the host's side of the socket device

	// What Boot or Restore fills in, before any vCPU runs.
	cpuid      []kvm.CPUIDEntry // what vCPU 0 shows
	slots      []slot           // virtio devices, in the order of their addresses
	disks      []vmm.Disk       // in the order of their slots; their files are the machine's
	overlays   []*overlayDisk   // those of the disks that have an overlay file, in order
	vsock      *vsock.Device
	serveVsock func()         // serves clients of guest ports; nil once serve has called it
	stopVsock  func()         // ends the vsock device's clients; may be nil
	serving    sync.WaitGroup // serveVsock, and what follows a gated start

	// What captures share.
	pauseBuffer int64           // bound of what stop-and-copy buffers, in bytes; 0: vmm.PauseBuffer
	frozenMu    sync.Mutex      // guards unsaved
	unsaved     []*overlay.Disk // frozen overlay files whose maps are not written yet

	// Who is told.
	onWarn   func(error)
	warnings atomic.Int32 // how often onWarn was called
	onExit   func(vmm.Exit)
	onDisk   func(vmm.DiskHealth)
	stall    stall // what is known of the disks' trouble

	// The end.
	exiting   sync.WaitGroup // the goroutine that calls onExit
	endOnce   sync.Once      // the guest ends once, however many vCPUs notice
	ending    atomic.Bool    // the guest has ended, whatever state says yet
	closeOnce sync.Once
	closeErr  error // of the first Close

	mu    sync.Mutex // guards what follows; taken by control calls and by end
	state vmm.State
	cid   uint32   // vsock context id
	clock uint64   // guest's clock in ns when it was paused
	tsc   []uint64 // every vCPU's time-stamp counter then
	// deadlines of the vCPUs' timers, from a restore until its start; 0: the timer does not run.
	deadlines []uint64
	restored  bool        // from an image, and not run since
	started   bool        // vCPU threads are between start and park
	gate      *gatedStart // where they wait in state armed; kept until Close
}

// slot is the place of a virtio device: its interrupt and doorbell exist from
// the shell on, its device from Boot or Restore on.
type slot struct {
	irq       int      // irqfd
	kick      *os.File // ioeventfd
	transport *virtio.MMIO
}

// New makes a shell: everything that takes time and does not depend on a
// snapshot's content. On error nothing remains.
func New(c Config) (_ *Machine, err error) {
	m := &Machine{shape: c.Shape, console: c.Console, host: c.Host, onExit: c.OnExit, onDisk: c.OnDisk, onWarn: c.Warn, state: vmm.StateShell}
	var u undo.Stack
	defer u.OnError(&err)
	for _, step := range []func(Config, *undo.Stack) error{
		m.reserveMemory, m.createVM, m.createVCPUs, m.attachSerial, m.attachSlots,
	} {
		if err := step(c, &u); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Machine) reserveMemory(_ Config, u *undo.Stack) (err error) {
	m.mem, err = guestmem.Reserve(m.shape.MemoryBytes())
	if err == nil {
		u.Push(func() { m.mem.Close() })
	}
	return err
}

func (m *Machine) createVM(c Config, u *undo.Stack) (err error) {
	if m.hostCPU, err = c.KVM.SupportedCPUID(); err != nil {
		return err
	}
	listed, err := c.KVM.MSRIndexList()
	if err != nil {
		return err
	}
	m.msrs = savedMSRs(listed)
	m.cpuid = guestCPUID(m.hostCPU, m.shape.VCPUs, c.KVM.Check(kvm.CapTSCDeadlineTimer) > 0)
	if m.vm, err = c.KVM.CreateVM(); err != nil {
		return err
	}
	u.Push(func() { m.vm.Close() })
	if err := m.vm.SetIdentityMapAddr(boot.IdentityMap); err != nil {
		return err
	}
	if err := m.vm.SetTSSAddr(boot.TSSAddr); err != nil {
		return err
	}
	if err := m.vm.CreateIRQChip(); err != nil {
		return err
	}
	for i, r := range m.mem.Regions() {
		if err := m.vm.SetMemory(uint32(i), r.GPA, uint64(r.Size), m.mem.HostAddr(r)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) createVCPUs(_ Config, u *undo.Stack) error {
	for i := range m.shape.VCPUs {
		cpu, err := m.vm.CreateVCPU(i)
		if err != nil {
			return err
		}
		if err := cpu.SetCPUID(forVCPU(m.cpuid, i)); err != nil {
			cpu.Close()
			return err
		}
		if i == 0 {
			if m.hasTSCOffset, err = cpu.HasTSCOffset(); err != nil {
				cpu.Close()
				return err
			}
			if m.fresh, err = readMSRs(cpu, m.msrs); err != nil {
				cpu.Close()
				return err
			}
		}
		v := newVCPU(cpu, m.handleExit, m.vcpuFailed)
		u.Push(v.close)
		m.vcpus = append(m.vcpus, v)
	}
	return nil
}

func (m *Machine) attachSerial(_ Config, u *undo.Stack) error {
	irq, err := m.newIRQ(boot.SerialIRQ, u)
	if err != nil {
		return err
	}
	m.uart = serial.New(m.console, func() { signal(irq) })
	return nil
}

// newIRQ makes an eventfd whose signals raise the interrupt line.
func (m *Machine) newIRQ(gsi uint32, u *undo.Stack) (int, error) {
	fd, err := newEventFD()
	if err != nil {
		return 0, err
	}
	m.fds = append(m.fds, fd)
	u.Push(func() { unix.Close(fd) })
	return fd, m.vm.IRQFD(fd, gsi)
}

// attachSlots registers interrupt and doorbells of every device that the shape has.
func (m *Machine) attachSlots(_ Config, u *undo.Stack) error {
	for i, queues := range slotQueues(m.shape) {
		irq, err := m.newIRQ(boot.MMIOIRQ(i), u)
		if err != nil {
			return err
		}
		fd, err := newEventFD()
		if err != nil {
			return err
		}
		kick := os.NewFile(uintptr(fd), "kick")
		u.Push(func() { kick.Close() })
		for q := range queues {
			if err := m.vm.IOEventFD(fd, boot.MMIOAddr(i)+virtio.QueueNotifyOffset, uint32(q)); err != nil {
				return err
			}
		}
		m.slots = append(m.slots, slot{irq: irq, kick: kick})
	}
	return nil
}

// warn reports what the guest or the host's resources did wrong.
func (m *Machine) warn(err error) {
	if m.onWarn != nil && m.warnings.Add(1) <= maxWarnings {
		m.onWarn(err)
	}
}
