package live

import (
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Sections of a saved machine (docs/inside/formats/vmstate.md).
const (
	secShape  = "shape"
	secCPUID  = cpuid.Section
	secClock  = "clock"
	secTSC    = "tsc"
	secIOAPIC = "ioapic"
	secSerial = "serial"

	shapeVersion  = 2
	slotsVersion  = 3 // with slots for volumes
	clockVersion  = 1
	ioapicVersion = 1
	virtioVersion = 1
)

func secVCPU(i int) string   { return "vcpu." + strconv.Itoa(i) }
func secVirtio(i int) string { return "virtio." + strconv.Itoa(i) }

// SaveState returns the state of a paused machine, except its memory.
func (m *Machine) SaveState() ([]byte, error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var w vmstate.Writer
	w.Add(secShape, shapeVersionOf(m.shape), encodeShape(m.shape, m.devices.lines))
	w.Add(secCPUID, cpuid.Version, cpuid.Encode(m.cpus.cpuid))
	w.Add(secClock, clockVersion, binary.LittleEndian.AppendUint64(nil, m.cpus.clock))
	w.Add(secTSC, tscVersion, encodeTSC(m.cpus.tsc))
	ioapic, err := m.vm.IRQChip(kvm.ChipIOAPIC)
	if err != nil {
		return nil, err
	}
	w.Add(secIOAPIC, ioapicVersion, kvm.Bytes(&ioapic))
	if err := m.devices.save(&w); err != nil {
		return nil, err
	}
	if err := m.cpus.save(&w); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

// Restore follows a RestoreConfig in a shell. It starts the guest unless Prepare or Gate is set.
// The machine owns the disks and the network, also after an error. The other files stay the
// caller's. After an error the machine can only be closed.
func (m *Machine) Restore(c vmm.RestoreConfig) (r vmm.RestoreResult, err error) {
	if err := m.begin(c.Disks, c.Net); err != nil {
		return r, err
	}
	defer m.mu.Unlock()
	if err := m.devices.setWire(c.Net); err != nil {
		return r, err
	}
	start := time.Now()
	if err := m.remotes.keep(c); err != nil {
		return r, err
	}
	if err := mapMemory(m.mem, c); err != nil {
		return r, err
	}
	mapped := time.Now()
	r.Map = mapped.Sub(start)
	if err := m.loadLocked(c); err != nil {
		return r, err
	}
	r.State = time.Since(mapped)
	m.state = vmm.StatePrepared
	m.remotes.start(m.end)
	switch {
	case c.Gate != nil:
		err = m.armLocked(c.Gate)
	case !c.Prepare:
		_, err = m.resumeLocked()
	}
	if err == nil && c.Prepare {
		m.state = vmm.StatePrepared
	}
	return r, err
}

// loadLocked loads the state into the machine, after its memory is mapped.
func (m *Machine) loadLocked(c vmm.RestoreConfig) error {
	size, err := c.State.Stat()
	if err != nil {
		return err
	}
	st, err := vmstate.Read(io.NewSectionReader(c.State, 0, size.Size())) // by position: the offset is shared
	if err != nil {
		return err
	}
	if m.devices.lines, err = decodeShape(st, m.shape); err != nil {
		return err
	}
	if err := m.devices.fill(&m.disks, c.CID, m.mem); err != nil {
		return err
	}
	clock, err := m.loadState(st)
	if err != nil {
		return err
	}
	if c.KeepMembers {
		m.devices.net.KeepMembers()
	}
	m.devices.vsock.SetCID(uint64(c.CID)) // the saved state has the source's CID
	if err := m.mem.WriteAt(c.GenID[:], boot.GenIDAddr); err != nil {
		return err
	}
	m.cid, m.cpus.clock, m.restored = c.CID, clock, true
	return m.vm.PulseIRQ(boot.GenIDIRQ) // pending at the guest's first instruction
}

func mapMemory(m *guestmem.Map, c vmm.RestoreConfig) error {
	if err := mapExtents(m, c.Memory); err != nil || !c.Watch {
		return err
	}
	// Before the first touch, which may be the restore of the state. Without it a working set
	// misses pages.
	if err := m.Watch(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func mapExtents(m *guestmem.Map, list []extent.Extent) error {
	for _, e := range list {
		var err error
		if e.Zero() {
			err = m.MapZero(e.Offset, e.Length)
		} else {
			err = m.MapFile(e.Offset, e.Length, int(e.File.Fd()), e.FileOffset)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadState restores every section and returns the clock.
func (m *Machine) loadState(st *vmstate.State) (clock uint64, err error) {
	if err := m.cpus.load(st); err != nil {
		return 0, err
	}
	b, err := st.Section(secIOAPIC, ioapicVersion)
	if err != nil {
		return 0, err
	}
	var ioapic kvm.IRQChipState
	if len(b) != len(kvm.Bytes(&ioapic)) {
		return 0, errors.New("interrupt controller state has the wrong size")
	}
	copy(kvm.Bytes(&ioapic), b)
	ioapic.ID = kvm.ChipIOAPIC
	if err := m.vm.SetIRQChip(&ioapic); err != nil {
		return 0, err
	}
	if err := m.devices.restore(st); err != nil {
		return 0, err
	}
	if b, err = st.Section(secTSC, tscVersion); err != nil {
		return 0, err
	}
	if m.cpus.tsc, err = decodeTSC(b, len(m.cpus.all)); err != nil {
		return 0, err
	}
	if b, err = st.Section(secClock, clockVersion); err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, errors.New("clock state has the wrong size")
	}
	return binary.LittleEndian.Uint64(b), nil
}
