package guest

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// keepKVM creates two idle VMs and keeps them while the appliance runs. The kernel patches its own code when the
// first VM appears and when the last one disappears (a static key in the scheduler, and two in KVM for vCPUs
// whose local APIC is off or missing). Emulated CPUs sometimes still execute the old bytes of another CPU's
// patch, and the kernel dies of a stray int3. With these VMs the counts never reach zero again, so no code is
// patched after the boot.
func (a *appliance) keepKVM() error {
	sys, err := kvm.Open("/dev/kvm")
	if err != nil {
		return err
	}
	defer sys.Close() // the VMs stay open
	for _, withAPIC := range []bool{true, false} {
		if err := a.keepVM(sys, withAPIC); err != nil {
			return fmt.Errorf("hold VM: %w", err)
		}
	}
	return nil
}

func (a *appliance) keepVM(sys *kvm.System, withAPIC bool) error {
	vm, err := sys.CreateVM()
	if err != nil {
		return err
	}
	if withAPIC {
		if err := vm.CreateIRQChip(); err != nil {
			return err
		}
	}
	cpu, err := vm.CreateVCPU(0)
	if err != nil {
		return err
	}
	a.held = append(a.held, vm, cpu) // never closed
	return nil
}

// keptQuota is an empty cgroup with a limit of CPU time.
const keptQuota = "/sys/fs/cgroup/forkd-machine-kept"

// keepQuota makes keptQuota, for the reason of keepKVM: the first limit of CPU time of any cgroup and the
// end of the last one patch the scheduler.
func keepQuota(*appliance) error {
	if err := os.Mkdir(keptQuota, 0o755); err != nil {
		return err
	}
	return os.WriteFile(keptQuota+"/cpu.max", []byte("100000 100000"), 0o644)
}
