package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// Config holds a transport's connections to the VMM.
type Config struct {
	Device Device // the device behind the transport
	Memory Memory // guest memory with the queues and their buffers
	// Raise asserts the device's interrupt. The line must be declared edge-triggered. Raise must
	// not block or call back.
	Raise func()
	// Kick is a non-blocking eventfd, registered by the VMM as ioeventfd for writes of 4 bytes to
	// QueueNotify, for any queue: the device checks all of its queues. The transport owns it. If
	// nil, kicks arrive only through WriteMMIO.
	Kick *os.File
	// Lazy is for a device that most guests never use. Before the driver's first notification, a
	// restore and a resume do no work for it. Notifications must go through WriteMMIO until Wake.
	Lazy bool
	// Fault, if set, receives the reason when the device goes to DEVICE_NEEDS_RESET. A guest can
	// cause this any number of times. Fault must not call back.
	Fault func(error)
}

// MMIO is a virtio-mmio register window (virtio 1.2 §4.2, version 2) with its device behind it.
// vCPU threads call ReadMMIO and WriteMMIO. The VM's owner calls Pause, Save, Restore, Resume and
// Close, one at a time.
type MMIO struct {
	dev   Device
	mem   Memory
	raise func()
	kick  *os.File
	fault func(error)
	kicks sync.WaitGroup // the reader of kick

	// Fields changed by the device's goroutines, without mu.
	status     atomic.Uint32
	isr        atomic.Uint32
	generation atomic.Uint32
	broken     atomic.Bool
	idle       atomic.Bool // the driver has never notified; only of a lazy device

	// mu guards the registers below. It is taken before the device's lock and never by a callback
	// from the device.
	mu             sync.Mutex
	devFeatSel     uint32
	drvFeatSel     uint32
	driverFeatures uint64
	queueSel       uint32
	regs           []queueRegs
	queues         []*Queue // nil while not active
	paused         bool
	listening      bool
	closed         bool
}

// queueRegs holds the driver's settings of a queue.
type queueRegs struct {
	queueLayout
	max   uint16
	ready bool
}

// NewMMIO returns a transport for a device. Call Close when done.
func NewMMIO(cfg Config) *MMIO {
	m := &MMIO{dev: cfg.Device, mem: cfg.Memory, raise: cfg.Raise, kick: cfg.Kick, fault: cfg.Fault}
	m.idle.Store(cfg.Lazy)
	for _, max := range cfg.Device.QueueSizes() {
		m.regs = append(m.regs, queueRegs{max: max})
	}
	if len(m.regs) > MaxQueues {
		panic("virtio: a device has more than MaxQueues queues")
	}
	m.resetRegs()
	return m
}

// Device returns the device behind the transport.
func (m *MMIO) Device() Device { return m.dev }

// Queues returns the number of queues.
func (m *MMIO) Queues() int { return len(m.regs) }

// offered returns the feature bits the driver may choose from.
func (m *MMIO) offered() uint64 { return m.dev.Features() | ringFeatures }

// NeedsReset reports whether the driver broke the device.
func (m *MMIO) NeedsReset() bool { return m.broken.Load() }

// Active reports whether a driver runs the device.
func (m *MMIO) Active() bool {
	return m.status.Load()&statusDriverOK != 0 && !m.broken.Load()
}

// ConfigChanged notifies the driver of a change of configuration space.
func (m *MMIO) ConfigChanged() {
	m.generation.Add(1)
	if m.Active() {
		m.interrupt(interruptConfig)
	}
}

// Pause returns once the device accesses no guest memory. The vCPUs must have stopped, so no
// register is written any more. Pausing twice is allowed.
func (m *MMIO) Pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.paused {
		m.dev.Pause()
		m.paused = true
	}
}

// Resume continues after Pause or Restore. The vCPUs may run already.
func (m *MMIO) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.paused {
		return
	}
	m.paused = false
	m.dev.Resume()
	if !m.idle.Load() {
		if m.queues != nil {
			m.listenLocked()
		}
		m.poke()
	}
	// When an older state was saved, an interrupt may have been on its way to the interrupt
	// controller. An extra interrupt does no harm.
	if m.isr.Load() != 0 {
		m.raise()
	}
}

// Close ends the device and waits for every goroutine. It is idempotent.
func (m *MMIO) Close() error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if m.kick != nil {
		err = m.kick.Close()
	}
	m.kicks.Wait()
	if cerr := m.dev.Close(); cerr != nil {
		return fmt.Errorf("close virtio device %d: %w", m.dev.Type(), cerr)
	}
	return err
}

// interrupt sets a bit of InterruptStatus before it asserts the line. A handler running in between
// finds the bit, and gets an extra interrupt at the end.
func (m *MMIO) interrupt(bit uint32) {
	m.isr.Or(bit)
	m.raise()
}

// fail stops the device until the driver resets it (virtio 1.2 §2.1.2).
func (m *MMIO) fail(err error) {
	if m.broken.Swap(true) {
		return
	}
	if m.status.Or(statusNeedsReset)&statusDriverOK != 0 {
		m.interrupt(interruptConfig)
	}
	if m.fault != nil {
		m.fault(err)
	}
}

// activateLocked builds the queues and starts the device.
func (m *MMIO) activateLocked() error {
	env := ringEnv{mem: m.mem, features: m.driverFeatures, fail: m.fail, broken: &m.broken}
	env.raise = func() { m.interrupt(interruptUsed) }
	queues := make([]*Queue, len(m.regs))
	for i, r := range m.regs {
		if !r.ready {
			queues[i] = unreadyQueue(env)
			continue
		}
		var err error
		if queues[i], err = newQueue(env, r.queueLayout, r.max); err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
	}
	m.queues = queues
	if err := m.dev.Activate(m.driverFeatures, queues); err != nil {
		m.queues = nil
		m.dev.Reset()
		return fmt.Errorf("activate: %w", err)
	}
	if !m.paused && !m.idle.Load() { // otherwise Resume or Wake starts the goroutine, to spare a restore the work
		m.listenLocked()
	}
	return nil
}

// listenLocked starts the goroutine waiting for kicks. Idle shells have none, because no driver has
// activated their devices.
func (m *MMIO) listenLocked() {
	if m.kick == nil || m.listening || m.closed {
		return
	}
	m.listening = true
	m.kicks.Go(m.listen)
}

// Wake ends the idleness of a lazy device.
func (m *MMIO) Wake() {
	if !m.idle.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle.Swap(false) && m.queues != nil && !m.paused {
		m.listenLocked()
	}
}

// Poke makes the device check its queues, like a kick of the driver.
func (m *MMIO) Poke() { m.poke() }

// poke makes the device check its queues. With an eventfd, the listener does the work. If a vCPU or
// the VM's owner did it, a guest could keep it busy for ever by adding requests, and the VM could
// not be paused.
func (m *MMIO) poke() {
	if m.kick == nil {
		m.dev.Kick()
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = m.kick.Write(one[:]) // fails only when closed
}

func (m *MMIO) listen() {
	var count [8]byte
	for {
		if _, err := m.kick.Read(count[:]); err != nil {
			if !errors.Is(err, os.ErrClosed) && m.fault != nil {
				m.fault(fmt.Errorf("read kick eventfd: %w", err))
			}
			return
		}
		m.dev.Kick()
	}
}

func (m *MMIO) resetLocked() {
	m.dev.Reset() // waits; after it no goroutine calls fail or interrupt
	m.queues = nil
	m.resetRegs()
}

func (m *MMIO) resetRegs() {
	m.devFeatSel, m.drvFeatSel, m.queueSel, m.driverFeatures = 0, 0, 0, 0
	for i := range m.regs {
		max := m.regs[i].max
		m.regs[i] = queueRegs{max: max, queueLayout: queueLayout{size: max}}
	}
	m.isr.Store(0)
	m.broken.Store(false)
	m.status.Store(0)
}
