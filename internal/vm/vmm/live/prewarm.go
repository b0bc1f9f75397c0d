package live

import (
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// Prewarm saves the state of a shell's vCPUs and loads it again, which changes nothing, since they
// never ran. It warms up the process: the code of a restore, its heap and the kernel's paths are
// first touched here and not during a fork. They take half of a first restore's time.
func (m *Machine) Prewarm() error {
	var w vmstate.Writer
	w.Add(secShape, shapeVersion, encodeShape(m.shape, bootLines(len(m.devices.slots))))
	w.Add(secCPUID, cpuid.Version, cpuid.Encode(m.cpus.cpuid))
	if err := m.cpus.save(&w); err != nil {
		return err
	}
	st, err := vmstate.Decode(w.Bytes())
	if err != nil {
		return err
	}
	if err := m.cpus.load(st); err != nil {
		return err
	}
	ioapic, err := m.vm.IRQChip(kvm.ChipIOAPIC)
	if err != nil {
		return err
	}
	if err := m.vm.SetIRQChip(&ioapic); err != nil {
		return err
	}
	if m.cpus.tsc, err = m.cpus.readTSC(); err != nil {
		return err
	}
	return m.cpus.setTime()
}
