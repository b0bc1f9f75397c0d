package live

import (
	"encoding/binary"
	"fmt"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// The time-stamp counters and the paravirtual clock of a machine belong to one instant: the pause
// at the save, and the start after a restore. Counters are set as offsets from the host's counter,
// the same for all vCPUs in step, for two reasons. KVM takes a written counter value within a
// second of the current one for an attempt to synchronise, and drops it (kvm_synchronize_tsc in
// arch/x86/kvm/x86.c). And the guest reads kvm-clock without an exit only while all offsets are
// equal.

const tscVersion = 1

// readTime records the clock and the counters at the instant of the call. The vCPUs are parked.
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

// readTSC returns every vCPU's counter at the instant of the call. The vCPUs are parked.
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

// tscOffset returns a vCPU's counter offset. It returns 0 if the kernel does not report one: before
// Linux 5.16 the kernel keeps counters within a second of each other in step, which this code
// relies on.
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

// setTime resumes the clocks of a restored machine from their saved values. No vCPU may run between
// the restore and its return. The clock is set after the counters, because KVM derives it from
// them. So are the timers' deadlines, which are counter values.
func (c *cpuSet) setTime() error {
	if err := c.setTSC(); err != nil {
		return err
	}
	if err := c.vm.SetClock(c.clock); err != nil {
		return err
	}
	for i, v := range c.all {
		if c.deadlines[i] == 0 {
			continue // the timer is stopped
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
