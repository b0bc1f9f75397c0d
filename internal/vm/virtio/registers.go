package virtio

import (
	"encoding/binary"
	"errors"
)

// Registers (virtio 1.2 §4.2.2, table 4.1).
const (
	regMagic             = 0x000
	regVersion           = 0x004
	regDeviceID          = 0x008
	regVendorID          = 0x00c
	regDeviceFeatures    = 0x010
	regDeviceFeaturesSel = 0x014
	regDriverFeatures    = 0x020
	regDriverFeaturesSel = 0x024
	regQueueSel          = 0x030
	regQueueSizeMax      = 0x034
	regQueueSize         = 0x038
	regQueueReady        = 0x044
	regQueueNotify       = 0x050
	regInterruptStatus   = 0x060
	regInterruptACK      = 0x064
	regStatus            = 0x070
	regQueueDescLow      = 0x080
	regQueueDescHigh     = 0x084
	regQueueDriverLow    = 0x090
	regQueueDriverHigh   = 0x094
	regQueueDeviceLow    = 0x0a0
	regQueueDeviceHigh   = 0x0a4
	regSHMLenLow         = 0x0b0
	regSHMLenHigh        = 0x0b4
	regSHMBaseLow        = 0x0b8
	regSHMBaseHigh       = 0x0bc
	regConfigGeneration  = 0x0fc
	regConfig            = 0x100
)

const (
	// WindowSize is the size of the register window to reserve.
	WindowSize = 0x1000
	// QueueNotifyOffset is the register of ioeventfds.
	QueueNotifyOffset = regQueueNotify

	magicValue = 0x74726976 // "virt"
	vendorID   = 0x6b726f66 // "fork"
)

// Device status bits (virtio 1.2 §2.1).
const (
	statusAcknowledge = 1
	statusDriver      = 2
	statusDriverOK    = 4
	statusFeaturesOK  = 8
	statusNeedsReset  = 64
	statusFailed      = 128
)

// Interrupt status bits.
const (
	interruptUsed   = 1
	interruptConfig = 2
)

var (
	errStatusOrder = errors.New("driver set status bits out of order or cleared one")
)

// ReadMMIO handles a vCPU's load of len(p) bytes at offset off of the window. All registers except
// configuration space are 32 bits wide; other accesses read 0.
func (m *MMIO) ReadMMIO(off uint64, p []byte) {
	clear(p)
	if off >= regConfig {
		m.dev.ReadConfig(off-regConfig, p)
		return
	}
	if len(p) == 4 && off%4 == 0 {
		binary.LittleEndian.PutUint32(p, m.read(off))
	}
}

// WriteMMIO handles a vCPU's store of p at offset off of the window. Without an eventfd, a write to
// QueueNotify does the work of a kick before it returns.
func (m *MMIO) WriteMMIO(off uint64, p []byte) {
	if off >= regConfig {
		m.dev.WriteConfig(off-regConfig, p)
		return
	}
	if len(p) != 4 || off%4 != 0 {
		return
	}
	v := binary.LittleEndian.Uint32(p)
	switch off {
	case regQueueNotify:
		m.Wake()
		m.poke() // not under mu: it may take a while
	case regInterruptACK:
		m.isr.And(^v)
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.writeLocked(off, v)
	}
}

func (m *MMIO) read(off uint64) uint32 {
	switch off {
	case regMagic:
		return magicValue
	case regVersion:
		return 2
	case regDeviceID:
		return m.dev.Type()
	case regVendorID:
		return vendorID
	case regInterruptStatus:
		return m.isr.Load()
	case regStatus:
		return m.status.Load()
	case regConfigGeneration:
		return m.generation.Load()
	case regSHMLenLow, regSHMLenHigh, regSHMBaseLow, regSHMBaseHigh:
		return 0xffffffff // virtio 1.2 §4.2.2.1: no such region
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readLocked(off)
}

func (m *MMIO) readLocked(off uint64) uint32 {
	switch off {
	case regDeviceFeatures:
		if m.devFeatSel > 1 {
			return 0
		}
		return uint32(m.offered() >> (32 * m.devFeatSel))
	case regQueueSizeMax:
		if r := m.selectedLocked(); r != nil {
			return uint32(r.max)
		}
	case regQueueReady:
		if r := m.selectedLocked(); r != nil && r.ready {
			return 1
		}
	}
	return 0
}

func (m *MMIO) writeLocked(off uint64, v uint32) {
	switch off {
	case regDeviceFeaturesSel:
		m.devFeatSel = v
	case regDriverFeaturesSel:
		m.drvFeatSel = v
	case regDriverFeatures:
		m.writeFeaturesLocked(v)
	case regQueueSel:
		m.queueSel = v
	case regStatus:
		m.writeStatusLocked(v)
	case regQueueReady:
		m.writeReadyLocked(v)
	default:
		m.writeLayoutLocked(off, v)
	}
}

func (m *MMIO) writeFeaturesLocked(v uint32) {
	if m.drvFeatSel > 1 || m.status.Load()&statusFeaturesOK != 0 {
		return
	}
	shift := 32 * m.drvFeatSel
	m.driverFeatures = m.driverFeatures&^(0xffffffff<<shift) | uint64(v)<<shift
}

// featuresFit reports whether the driver's choice is acceptable: only offered features, and not the
// legacy interface.
func (m *MMIO) featuresFit(chosen uint64) bool {
	return chosen&^m.offered() == 0 && chosen&FeatureVersion1 != 0
}

// writeStatusLocked drives the status machine of virtio 1.2 §3.1.1.
func (m *MMIO) writeStatusLocked(v uint32) {
	if v == 0 {
		m.resetLocked()
		return
	}
	old := m.status.Load()
	v |= old & statusNeedsReset // the device's bit, whatever the driver writes
	added := v &^ old
	switch {
	case old&^v != 0, !statusOrder(v):
		m.fail(errStatusOrder)
		return
	case added&statusNeedsReset != 0:
		v &^= statusNeedsReset
	}
	if added&statusFeaturesOK != 0 && !m.featuresFit(m.driverFeatures) {
		v &^= statusFeaturesOK // virtio 1.2 §3.1.1, step 6: the driver re-reads it
		if v&statusDriverOK != 0 {
			m.fail(errStatusOrder)
			return
		}
	}
	m.status.Or(v)
	if added&statusDriverOK != 0 && !m.broken.Load() {
		if err := m.activateLocked(); err != nil {
			m.fail(err)
		}
	}
}

// statusOrder checks that each step comes with the steps before it.
func statusOrder(v uint32) bool {
	steps := []uint32{statusAcknowledge, statusDriver, statusFeaturesOK, statusDriverOK}
	for i := 1; i < len(steps); i++ {
		if v&steps[i] != 0 && v&steps[i-1] == 0 {
			return false
		}
	}
	return true
}

func (m *MMIO) selectedLocked() *queueRegs {
	if m.queueSel >= uint32(len(m.regs)) {
		return nil
	}
	return &m.regs[m.queueSel]
}

// writeReadyLocked takes a queue into or out of use. Its layout is checked when the device is
// activated.
func (m *MMIO) writeReadyLocked(v uint32) {
	r := m.selectedLocked()
	if r == nil {
		return
	}
	if m.queues == nil {
		r.ready = v&1 != 0
		return
	}
	if v&1 == 0 && r.ready {
		r.ready = false
		m.stopQueueLocked(m.queues[m.queueSel])
	}
}

// stopQueueLocked removes a queue from a running device. The driver may reuse its memory once it
// reads back QueueReady as 0.
func (m *MMIO) stopQueueLocked(q *Queue) {
	if !m.paused {
		m.dev.Pause()
		defer m.poke()
		defer m.dev.Resume()
	}
	q.stopped = true
}

// writeLayoutLocked sets the size and addresses of an unused queue.
func (m *MMIO) writeLayoutLocked(off uint64, v uint32) {
	r := m.selectedLocked()
	if r == nil || r.ready || m.queues != nil {
		return
	}
	switch off {
	case regQueueSize:
		r.size = uint16(min(v, 0xffff)) // too large either way
	case regQueueDescLow:
		setLow(&r.desc, v)
	case regQueueDescHigh:
		setHigh(&r.desc, v)
	case regQueueDriverLow:
		setLow(&r.avail, v)
	case regQueueDriverHigh:
		setHigh(&r.avail, v)
	case regQueueDeviceLow:
		setLow(&r.used, v)
	case regQueueDeviceHigh:
		setHigh(&r.used, v)
	}
}

func setLow(a *GPA, v uint32)  { *a = *a&^0xffffffff | GPA(v) }
func setHigh(a *GPA, v uint32) { *a = *a&0xffffffff | GPA(v)<<32 }
