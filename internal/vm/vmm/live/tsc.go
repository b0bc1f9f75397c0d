package live

import (
	"encoding/binary"
	"fmt"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// The time-stamp counters of a machine belong to one instant, that of its
// paravirtual clock: the pause at the save, and the start after a restore. They
// are set by their offset from the host's counter, the same for all vCPUs that
// were in step: a counter that is written is taken by KVM for an attempt to
// synchronise, and dropped, if it is within a second of where it stood (kvm_synchronize_tsc in
// arch/x86/kvm/x86.c); and kvm-clock is read without leaving the guest only while all offsets are equal.

const tscVersion = 1

// readTime notes clock and counters of the instant at which it is called. The vCPUs are parked.
func (c *cpuSet) readTime() error {
	clock, err := c.vm.Clock()
	if err != nil {
		return err
	}
	if c.tsc, err = c.readTSC(); err != nil {
		return err
	}
	c.clock = clock.Clock
	return nil
}

// readTSC gives every vCPU's counter, of the instant at which it is called. The vCPUs are parked.
func (c *cpuSet) readTSC() ([]uint64, error) {
	first, err := tscOf(c.all[0].cpu)
	if err != nil {
		return nil, err
	}
	offset, err := c.tscOffset(c.all[0].cpu)
	if err != nil {
		return nil, err
	}
	all := []uint64{first}
	for _, v := range c.all[1:] {
		other, err := c.tscOffset(v.cpu)
		if err != nil {
			return nil, err
		}
		all = append(all, first+other-offset)
	}
	return all, nil
}

// tscOffset is 0 where the kernel does not tell: before Linux 5.16 it keeps
// counters that are within a second of each other in step, which is taken for granted.
func (c *cpuSet) tscOffset(cpu *kvm.VCPU) (uint64, error) {
	if !c.hasTSCOffset {
		return 0, nil
	}
	return cpu.TSCOffset()
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
func (c *cpuSet) setTime() error {
	if err := c.setTSC(); err != nil {
		return err
	}
	if err := c.vm.SetClock(c.clock); err != nil {
		return err
	}
	for i, v := range c.all {
		if c.deadlines[i] == 0 {
			continue // no timer runs
		}
		if err := writeMSRs(v.cpu, []kvm.MSR{{Index: msrTSCDeadline, Value: c.deadlines[i]}}); err != nil {
			return err
		}
	}
	return nil
}

func (c *cpuSet) setTSC() error {
	if !c.hasTSCOffset {
		for i, v := range c.all {
			if err := writeMSRs(v.cpu, []kvm.MSR{{Index: msrTSC, Value: c.tsc[i]}}); err != nil {
				return err
			}
		}
		return nil
	}
	first := c.all[0].cpu
	offset, err := first.TSCOffset()
	if err != nil {
		return err
	}
	now, err := tscOf(first)
	if err != nil {
		return err
	}
	for i, v := range c.all {
		if err := v.cpu.SetTSCOffset(offset + c.tsc[i] - now); err != nil {
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
