package live

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// cpuSet holds a machine's vCPUs and their common time. The machine's mu guards the variable
// fields.
type cpuSet struct {
	// Set by New and constant afterwards.
	vm           *kvm.VM // has the paravirtual clock
	all          []*vcpu
	msrs         []uint32  // MSRs of a vCPU's state on this host
	fresh        []kvm.MSR // values of a fresh vCPU
	hasTSCOffset bool      // the host's kernel accepts time-stamp counters as offsets

	cpuid   []kvm.CPUIDEntry // table of vCPU 0; the saved table after a restore
	started bool             // the threads are between start and park

	clock uint64   // guest's clock in ns at the pause
	tsc   []uint64 // every vCPU's time-stamp counter at the pause
	// deadlines of the vCPUs' timers, from a restore until its start. 0 means a stopped timer.
	deadlines []uint64
}

// create makes n vCPUs and their threads.
func (c *cpuSet) create(n int, on vcpuEvents, u *undo.Stack) error {
	for i := range n {
		cpu, err := c.vm.CreateVCPU(i)
		if err != nil {
			return err
		}
		if err := c.prepare(cpu, i); err != nil {
			cpu.Close()
			return err
		}
		v := newVCPU(cpu, on)
		u.Push(v.close)
		c.all = append(c.all, v)
	}
	return nil
}

// prepare sets a vCPU's CPUID table. From the first vCPU it also reads the values shared by all.
func (c *cpuSet) prepare(cpu *kvm.VCPU, i int) (err error) {
	if err := cpu.SetCPUID(forVCPU(c.cpuid, i)); err != nil {
		return err
	}
	if i != 0 {
		return nil
	}
	if c.hasTSCOffset, err = cpu.HasTSCOffset(); err != nil {
		return err
	}
	c.fresh, err = readMSRs(cpu, c.msrs)
	return err
}

// setUp prepares the vCPUs for a boot.
func (c *cpuSet) setUp(start boot.Start) error {
	for _, v := range c.all {
		if err := setUpVCPU(v.cpu, start); err != nil {
			return err
		}
	}
	return nil
}

// enter makes every vCPU enter the guest. It returns the time just before the last one entered, in
// nanoseconds of CLOCK_MONOTONIC.
func (c *cpuSet) enter() (at int64) {
	var entered sync.WaitGroup
	var last atomic.Int64 // not the time at which the caller gets a CPU again: guests may occupy all CPUs
	last.Store(startgate.Now())
	entered.Add(len(c.all))
	c.start(func(*vcpu) bool {
		last.Store(startgate.Now())
		entered.Done()
		return true
	})
	entered.Wait()
	return last.Load()
}

// start hands every vCPU to its thread, which calls pass first.
func (c *cpuSet) start(pass func(*vcpu) bool) {
	c.started = true
	for _, v := range c.all {
		v.start(pass)
	}
}

// park stops every vCPU and waits until all have left the guest.
func (c *cpuSet) park() {
	if !c.started {
		return
	}
	c.interrupt()
	for _, v := range c.all {
		v.park()
	}
	c.started = false
}

// interrupt makes every vCPU leave the guest and park. It does not wait and needs no lock.
func (c *cpuSet) interrupt() {
	for _, v := range c.all {
		v.interrupt()
	}
}

// each runs do on every vCPU's thread. All vCPUs are parked before and after.
func (c *cpuSet) each(do func() error) error {
	errs := make([]error, len(c.all))
	for i, v := range c.all {
		v.start(func(*vcpu) bool { errs[i] = do(); return false })
	}
	for _, v := range c.all {
		<-v.parked
	}
	return errors.Join(errs...)
}

// tellOfPause reports the pause to KVM, which keeps the guest's watchdogs from firing.
func (c *cpuSet) tellOfPause() error {
	for _, v := range c.all {
		// Guests without kvm-clock return EINVAL and need no report.
		if err := v.cpu.ClockCtrl(); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

// save adds a section for each vCPU. All are parked.
func (c *cpuSet) save(w *vmstate.Writer) error {
	for i, v := range c.all {
		b, err := saveVCPU(v.cpu, c.msrs)
		if err != nil {
			return err
		}
		w.Add(secVCPU(i), vcpuVersion, b)
	}
	return nil
}

// load restores the vCPUs, which never ran, from their sections. It leaves their time unset.
func (c *cpuSet) load(st *vmstate.State) error {
	same, err := c.loadCPUID(st)
	if err != nil {
		return err
	}
	c.deadlines = make([]uint64, len(c.all))
	var s vcpuState
	for i, v := range c.all {
		b, err := st.Section(secVCPU(i), vcpuVersion)
		if err != nil {
			return err
		}
		if err := s.decode(b); err != nil {
			return fmt.Errorf("vCPU %d: %w", i, err)
		}
		if !same {
			if err := v.cpu.SetCPUID(forVCPU(c.cpuid, i)); err != nil {
				return err
			}
		}
		if err := s.load(v.cpu, c.fresh); err != nil {
			return err
		}
		c.deadlines[i] = s.deadline()
	}
	return nil
}

// loadCPUID makes the saved table the machine's, if this host's CPU can replace the one seen by the
// guest. It reports same if the vCPUs already have the table.
func (c *cpuSet) loadCPUID(st *vmstate.State) (same bool, err error) {
	b, err := st.Section(secCPUID, cpuid.Version)
	if err != nil {
		return false, err
	}
	table, err := cpuid.Decode(b)
	if err != nil {
		return false, err
	}
	table = forVCPU(table, 0)
	if slices.Equal(table, c.cpuid) {
		return true, nil
	}
	if err := checkCPU(table, c.cpuid); err != nil {
		return false, err
	}
	c.cpuid = table
	return false, nil
}

// close ends the parked threads and frees the vCPUs.
func (c *cpuSet) close() {
	for _, v := range c.all {
		v.close()
	}
}
