package vmm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/forkd/forkd/internal/boot"
	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/kvm"
	"github.com/forkd/forkd/internal/serial"
	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmstate"
)

// Sections of a saved machine (docs/formats/vmstate.md).
const (
	secShape  = "shape"
	secCPUID  = "cpuid"
	secClock  = "clock"
	secIOAPIC = "ioapic"
	secSerial = "serial"

	shapeVersion  = 1
	clockVersion  = 1
	ioapicVersion = 1
	virtioVersion = 1
)

func secVCPU(i int) string   { return "vcpu." + strconv.Itoa(i) }
func secVirtio(i int) string { return "virtio." + strconv.Itoa(i) }

// SaveState writes everything but memory of a paused machine.
func (m *Machine) SaveState() ([]byte, error) {
	if err := m.lockIn(vmmctl.StatePaused); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var w vmstate.Writer
	w.Add(secShape, shapeVersion, m.encodeShape())
	w.Add(secCPUID, cpuidVersion, encodeCPUID(m.cpuid))
	w.Add(secClock, clockVersion, binary.LittleEndian.AppendUint64(nil, m.clock))
	ioapic, err := m.vm.IRQChip(kvm.ChipIOAPIC)
	if err != nil {
		return nil, err
	}
	w.Add(secIOAPIC, ioapicVersion, kvm.Bytes(&ioapic))
	w.Add(secSerial, serial.StateVersion, m.uart.SaveState())
	for i, s := range m.slots {
		b, err := s.transport.Save()
		if err != nil {
			return nil, fmt.Errorf("save device %d: %w", i, err)
		}
		w.Add(secVirtio(i), virtioVersion, b)
	}
	for i, v := range m.vcpus {
		b, err := saveVCPU(v.cpu, m.msrs)
		if err != nil {
			return nil, err
		}
		w.Add(secVCPU(i), vcpuVersion, b)
	}
	return w.Bytes(), nil
}

func (m *Machine) encodeShape() []byte {
	var b []byte
	for _, v := range []int{m.shape.MemoryMiB, m.shape.VCPUs, m.shape.Disks} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// Image is what a shell is restored from.
type Image struct {
	State   io.Reader
	Memory  func(*guestmem.Map) error // maps the guest's memory
	GenID   [16]byte
	Prepare bool     // nobody has asked for it yet; without a Gate, leave it to Resume
	Gate    *os.File // the vCPUs wait there; nil: nowhere
	Backends
}

// Restore loads a saved machine into a shell and, unless it is to Prepare or behind a Gate, lets it run.
// After an error the machine can only be closed.
func (m *Machine) Restore(img Image, lap func(string)) error {
	if err := m.lockIn(vmmctl.StateShell); err != nil {
		img.refuse()
		return err
	}
	defer m.mu.Unlock()
	m.state = vmmctl.StateExited // until it runs
	m.take(img.Backends)
	if err := img.Memory(m.mem); err != nil {
		return err
	}
	lap("map")
	st, err := vmstate.Read(img.State)
	if err != nil {
		return err
	}
	if err := m.checkShape(st); err != nil {
		return err
	}
	if err := m.attachDevices(img.Backends); err != nil {
		return err
	}
	clock, err := m.loadState(st)
	if err != nil {
		return err
	}
	m.vsock.SetCID(uint64(img.CID)) // the saved state holds the source's
	if err := m.mem.WriteAt(img.GenID[:], boot.GenIDAddr); err != nil {
		return err
	}
	lap("state")
	m.cid = img.CID
	m.clock, m.restored = clock, true
	m.state = vmmctl.StatePrepared
	switch {
	case img.Gate != nil:
		err = m.armLocked(img.Gate)
	case !img.Prepare:
		_, err = m.resumeLocked()
	}
	if err == nil && img.Prepare {
		m.state = vmmctl.StatePrepared
	}
	lap("resume")
	return err
}

func (m *Machine) checkShape(st *vmstate.State) error {
	b, err := st.Section(secShape, shapeVersion)
	if err != nil {
		return err
	}
	if !slices.Equal(b, m.encodeShape()) {
		return fmt.Errorf("the saved machine has another shape than this shell (%d MiB, %d vCPUs, %d disks)",
			m.shape.MemoryMiB, m.shape.VCPUs, m.shape.Disks)
	}
	return nil
}

// loadState puts every section where it belongs and returns the clock.
func (m *Machine) loadState(st *vmstate.State) (clock uint64, err error) {
	if err := m.loadVCPUs(st); err != nil {
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
	if b, err = st.Section(secSerial, serial.StateVersion); err != nil {
		return 0, err
	}
	if err := m.uart.RestoreState(b); err != nil {
		return 0, fmt.Errorf("restore serial console: %w", err)
	}
	for i, s := range m.slots {
		if b, err = st.Section(secVirtio(i), virtioVersion); err != nil {
			return 0, err
		}
		if err := s.transport.Restore(b); err != nil {
			return 0, fmt.Errorf("restore device %d: %w", i, err)
		}
	}
	if b, err = st.Section(secClock, clockVersion); err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, errors.New("clock state has the wrong size")
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (m *Machine) loadVCPUs(st *vmstate.State) error {
	b, err := st.Section(secCPUID, cpuidVersion)
	if err != nil {
		return err
	}
	table, err := decodeCPUID(b)
	if err != nil {
		return err
	}
	same := slices.Equal(table, m.cpuid)
	if !same {
		if err := checkFeatures(table, m.cpuid); err != nil {
			return err
		}
	}
	m.cpuid = table
	var s vcpuState
	for i, v := range m.vcpus {
		if b, err = st.Section(secVCPU(i), vcpuVersion); err != nil {
			return err
		}
		if err := s.decode(b); err != nil {
			return fmt.Errorf("vCPU %d: %w", i, err)
		}
		if !same {
			if err := v.cpu.SetCPUID(forVCPU(table, i)); err != nil {
				return err
			}
		}
		if err := s.load(v.cpu, m.fresh); err != nil {
			return err
		}
	}
	return nil
}
