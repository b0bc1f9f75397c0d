package virtio

import (
	"errors"
	"fmt"
)

// stateVersion is the version of the transport's encoding, documented in
// docs/inside/formats/device-state.md.
const stateVersion = 1

// idleVersion is the version of a lazy device's state before the driver's first notification. It
// has the same fields.
const idleVersion = 2

var errNotPaused = errors.New("virtio device is not paused")

// savedState is the transport's decoded state.
type savedState struct {
	deviceType, status, isr, generation uint32
	devFeatSel, drvFeatSel, queueSel    uint32
	driverFeatures                      uint64
	active, idle                        bool
	queues                              []savedQueue
	device                              []byte
}

type savedQueue struct {
	queueLayout
	ready, stopped      bool
	nextAvail, nextUsed uint16
}

// Save encodes transport and device. The device must be paused, and stays paused.
func (m *MMIO) Save() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.paused {
		return nil, errNotPaused
	}
	s := savedState{
		deviceType: m.dev.Type(), status: m.status.Load(), isr: m.isr.Load(), generation: m.generation.Load(),
		devFeatSel: m.devFeatSel, drvFeatSel: m.drvFeatSel, queueSel: m.queueSel,
		driverFeatures: m.driverFeatures, active: m.queues != nil, idle: m.idle.Load(),
	}
	for i, r := range m.regs {
		q := savedQueue{queueLayout: r.queueLayout, ready: r.ready}
		if m.queues != nil {
			q.nextAvail, q.nextUsed, q.stopped = m.queues[i].nextAvail, m.queues[i].nextUsed, m.queues[i].stopped
		}
		s.queues = append(s.queues, q)
	}
	s.device = m.dev.SaveState()
	return s.encode(), nil
}

// Restore decodes the result of Save, from an untrusted file, into a transport not accessed by any
// driver yet. The device is paused afterwards: Resume starts it. Guest memory is not accessed
// before that.
func (m *MMIO) Restore(state []byte) error {
	s, err := decodeState(state)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fitsLocked(s); err != nil {
		return err
	}
	if err := m.dev.RestoreState(s.device); err != nil {
		return fmt.Errorf("restore virtio device %d: %w", s.deviceType, err)
	}
	if !m.paused {
		m.dev.Pause()
		m.paused = true
	}
	if !s.idle {
		m.idle.Store(false)
	}
	m.adoptLocked(s)
	if !s.active {
		return nil
	}
	if err := m.activateLocked(); err != nil {
		m.resetLocked()
		return fmt.Errorf("%w: %w", ErrBadState, err)
	}
	for i, q := range m.queues {
		q.nextAvail, q.nextUsed, q.stopped = s.queues[i].nextAvail, s.queues[i].nextUsed, s.queues[i].stopped
	}
	return nil
}

// fitsLocked checks a decoded state against this device.
func (m *MMIO) fitsLocked(s *savedState) error {
	switch {
	case m.queues != nil || m.status.Load() != 0:
		return errors.New("restore into a virtio device that is in use")
	case s.deviceType != m.dev.Type():
		return fmt.Errorf("%w: device type is %d, this is %d", ErrBadState, s.deviceType, m.dev.Type())
	case len(s.queues) != len(m.regs):
		return fmt.Errorf("%w: %d queues, this device has %d", ErrBadState, len(s.queues), len(m.regs))
	case s.status&statusFeaturesOK != 0 && !m.featuresFit(s.driverFeatures):
		return fmt.Errorf("%w: driver features %#x, offered are %#x", ErrBadState, s.driverFeatures, m.offered())
	}
	return nil
}

func (m *MMIO) adoptLocked(s *savedState) {
	m.status.Store(s.status)
	m.isr.Store(s.isr)
	m.generation.Store(s.generation)
	m.broken.Store(s.status&statusNeedsReset != 0)
	m.devFeatSel, m.drvFeatSel, m.queueSel = s.devFeatSel, s.drvFeatSel, s.queueSel
	m.driverFeatures = s.driverFeatures
	for i, q := range s.queues {
		m.regs[i].queueLayout, m.regs[i].ready = q.queueLayout, q.ready
	}
}

func (s *savedState) encode() []byte {
	var w StateWriter
	version := uint16(stateVersion)
	if s.idle {
		version = idleVersion
	}
	w.U16(version)
	for _, v := range []uint32{s.deviceType, s.status, s.isr, s.generation, s.devFeatSel, s.drvFeatSel, s.queueSel} {
		w.U32(v)
	}
	w.U64(s.driverFeatures)
	w.Bool(s.active)
	w.U8(uint8(len(s.queues)))
	for _, q := range s.queues {
		w.U16(q.size)
		w.Bool(q.ready)
		w.Bool(q.stopped)
		w.U64(q.desc)
		w.U64(q.avail)
		w.U64(q.used)
		w.U16(q.nextAvail)
		w.U16(q.nextUsed)
	}
	w.Blob(s.device)
	return w.Bytes()
}

func decodeState(b []byte) (*savedState, error) {
	r := NewStateReader(b)
	s := &savedState{}
	version := r.U16()
	r.Check(version == stateVersion || version == idleVersion, "version is %d, this build reads %d and %d",
		version, stateVersion, idleVersion)
	s.idle = version == idleVersion
	for _, p := range []*uint32{&s.deviceType, &s.status, &s.isr, &s.generation, &s.devFeatSel, &s.drvFeatSel,
		&s.queueSel} {
		*p = r.U32()
	}
	s.driverFeatures = r.U64()
	s.active = r.Bool()
	r.Check(!s.active || s.status&statusDriverOK != 0, "active in status %#x", s.status)
	n := r.U8()
	r.Check(n <= MaxQueues, "%d queues", n)
	for range min(n, MaxQueues) {
		var q savedQueue
		q.size, q.ready, q.stopped = r.U16(), r.Bool(), r.Bool()
		q.desc, q.avail, q.used = r.U64(), r.U64(), r.U64()
		q.nextAvail, q.nextUsed = r.U16(), r.U16()
		s.queues = append(s.queues, q)
	}
	s.device = r.Blob()
	return s, r.Close()
}
