package live

import (
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/workingset"
)

// Config holds the parts of a new shell. The machine takes ownership of Console and Host.
type Config struct {
	KVM     *kvm.System     // creates the VM; stays the caller's
	Shape   vmspec.Shape    // memory size, vCPUs and disks
	Console *serial.Log     // the output of the serial port
	Host    Host            // the host's side of vsock and network
	Kernel  guestmem.Kernel // files the process cannot open in a jail; they stay the caller's
	// OnExit is called once, from its own goroutine, when the guest has ended by itself.
	OnExit func(vmm.Exit)
	// OnHealth receives the health after each change, from its own goroutine. It may be nil.
	OnHealth func(vmm.Health)
	// Warn receives non-fatal problems, at most maxWarnings times, because a guest can cause many
	// of them. It may be nil and must not call back.
	Warn func(error)
}

const maxWarnings = 100

// Machine is a live VM: its state, its end, and its parts.
//
// Lock order: mu first, then diskSet.frozenMu, and stall.mu last.
type Machine struct {
	shape   vmspec.Shape // memory, vCPUs and devices
	vm      *kvm.VM
	mem     *guestmem.Map
	console *serial.Log

	devices  deviceSet
	disks    diskSet
	stall    stall // the condition of the disks
	warnings warnings
	remotes  remotes

	pauseBuffer int64 // limit of a capture's stop-and-copy buffer, in bytes; 0 for vmm.PauseBuffer

	// Fields of the machine's end.
	onExit    func(vmm.Exit)
	exiting   sync.WaitGroup // the goroutine of onExit
	endOnce   sync.Once      // several vCPUs may notice the same end
	ending    atomic.Bool    // the guest has ended, even if state does not show it yet
	closeOnce sync.Once
	closeErr  error // of the first Close

	mu       sync.Mutex // guards the fields below; taken by control calls and by end
	state    vmm.State
	cpus     cpuSet
	cid      uint32      // vsock context id
	restored bool        // restored and not run since
	gate     *gatedStart // where vCPUs wait in state armed; kept until Close

	populated []workingset.Set // sets mapped so far; their pages are not mapped again
}

// New creates a shell. It does all slow work independent of a snapshot's content. On error it frees
// everything.
func New(c Config) (_ *Machine, err error) {
	m := newMachine(c)
	var u undo.Stack
	defer u.OnError(&err)
	for _, step := range []func(Config, *undo.Stack) error{
		m.reserveMemory, m.createVM, m.createVCPUs, m.createDevices,
	} {
		if err := step(c, &u); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newMachine assembles the parts. None of them holds a resource yet.
func newMachine(c Config) *Machine {
	m := &Machine{shape: c.Shape, console: c.Console, onExit: c.OnExit, state: vmm.StateShell}
	m.warnings.tell = c.Warn
	m.stall = stall{machine: m, retry: m.disks.retry, onHealth: c.OnHealth, warn: m.warnings.warn}
	m.disks.stall, m.disks.warn = &m.stall, m.warnings.warn
	m.devices.host, m.devices.warn = c.Host, m.warnings.warn
	return m
}

func (m *Machine) reserveMemory(c Config, u *undo.Stack) (err error) {
	if m.mem, err = guestmem.Reserve(m.shape.MemoryBytes()); err != nil {
		return err
	}
	u.Push(func() { m.mem.Close() })
	m.mem.Use(c.Kernel)
	m.mem.OpenTracking() // a confined process cannot open the files at capture time
	return nil
}

func (m *Machine) createVM(c Config, u *undo.Stack) (err error) {
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

func (m *Machine) createVCPUs(c Config, u *undo.Stack) error {
	host, err := c.KVM.SupportedCPUID()
	if err != nil {
		return err
	}
	listed, err := c.KVM.MSRIndexList()
	if err != nil {
		return err
	}
	m.cpus.vm, m.cpus.msrs = m.vm, savedMSRs(listed)
	m.cpus.cpuid = guestCPUID(host, m.shape.VCPUs, c.KVM.Check(kvm.CapTSCDeadlineTimer) > 0)
	return m.cpus.create(m.shape.VCPUs, vcpuEvents{m.handleExit, m.vcpuFailed, m.vcpuHangs}, u)
}

func (m *Machine) createDevices(_ Config, u *undo.Stack) error {
	m.devices.pulse = m.vm.PulseIRQ
	m.devices.uart = serial.New(m.console, m.devices.raiser(boot.SerialIRQ))
	m.devices.spare = m.shape.Slots
	return m.devices.attachSlots(m.vm, hasDoorbell(m.shape), u)
}

// warnings limits the reports of problems caused by the guest or by the host's resources.
type warnings struct {
	tell func(error) // may be nil
	told atomic.Int32
}

func (w *warnings) warn(err error) {
	if w.tell != nil && w.told.Add(1) <= maxWarnings {
		w.tell(err)
	}
}
