package live

import (
	"encoding/binary"
	"fmt"

	"github.com/forkd/forkd/internal/kvm"
)

// The time-stamp counters of a machine belong to one instant, that of its
// paravirtual clock: the pause at the save, and the start after a restore. They
// are set by their offset from the host's counter, the same for all vCPUs that
// were in step: a counter that is written is taken by KVM for an attempt to
// synchronise, and dropped, if it is within a second of where it stood (kvm_synchronize_tsc in
// arch/x86/kvm/x86.c); and kvm-clock is read without leaving the guest only while all offsets are equal.

const tscVersion = 1

// readTSC gives every vCPU's counter, of the instant at which it is called. The vCPUs are parked.
func (m *Machine) readTSC() ([]uint64, error) {
	first, err := tscOf(m.vcpus[0].cpu)
	if err != nil {
		return nil, err
	}
	offset, err := m.tscOffset(m.vcpus[0].cpu)
	if err != nil {
		return nil, err
	}
	all := []uint64{first}
	for _, v := range m.vcpus[1:] {
		other, err := m.tscOffset(v.cpu)
		if err != nil {
			return nil, err
		}
		all = append(all, first+other-offset)
	}
	return all, nil
}

// tscOffset is 0 where the kernel does not tell: before Linux 5.16 it keeps
// counters that are within a second of each other in step, which is taken for granted.
func (m *Machine) tscOffset(c *kvm.VCPU) (uint64, error) {
	if !m.hasTSCOffset {
		return 0, nil
	}
	return c.TSCOffset()
}

func tscOf(c *kvm.VCPU) (uint64, error) {
	got, err := c.MSRs([]uint32{msrTSC})
	if err == nil && len(got) != 1 {
		err = fmt.Errorf("vCPU %d has no time-stamp counter", c.ID())
	}
	if err != nil {
		return 0, err
	}
	return got[0].Value, nil
}

// setTime lets the clocks of a restored machine go on where they stood. No vCPU
// has run since the restore, nor does one before it returns. The clock comes after the counters,
// from which KVM derives it, and the timers' deadlines too, which count in them.
func (m *Machine) setTime() error {
	if err := m.setTSC(); err != nil {
		return err
	}
	if err := m.vm.SetClock(m.clock); err != nil {
		return err
	}
	for i, v := range m.vcpus {
		if m.deadlines[i] == 0 {
			continue // no timer runs
		}
		if err := writeMSRs(v.cpu, []kvm.MSR{{Index: msrTSCDeadline, Value: m.deadlines[i]}}); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) setTSC() error {
	if !m.hasTSCOffset {
		for i, v := range m.vcpus {
			if err := writeMSRs(v.cpu, []kvm.MSR{{Index: msrTSC, Value: m.tsc[i]}}); err != nil {
				return err
			}
		}
		return nil
	}
	first := m.vcpus[0].cpu
	offset, err := first.TSCOffset()
	if err != nil {
		return err
	}
	now, err := tscOf(first)
	if err != nil {
		return err
	}
	for i, v := range m.vcpus {
		if err := v.cpu.SetTSCOffset(offset + m.tsc[i] - now); err != nil {
			return err
		}
	}
	return nil
}

func encodeTSC(all []uint64) []byte {
	var b []byte
	for _, t := range all {
		b = binary.LittleEndian.AppendUint64(b, t)
	}
	return b
}

func decodeTSC(b []byte, vcpus int) ([]uint64, error) {
	if len(b) != 8*vcpus {
		return nil, fmt.Errorf("time-stamp counters of %d vCPUs take %d bytes", vcpus, len(b))
	}
	all := make([]uint64, vcpus)
	for i := range all {
		all[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return all, nil
}
