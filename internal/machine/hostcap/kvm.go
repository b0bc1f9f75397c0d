package hostcap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/forkd/forkd/internal/vm/kvm"
)

const device = "/dev/kvm"

// needed are the capabilities used by the VMM, with the kernel's names.
var needed = []struct {
	name string
	cap  kvm.Cap
}{
	{"KVM_CAP_IRQCHIP", kvm.CapIRQChip},
	{"KVM_CAP_USER_MEMORY", kvm.CapUserMemory},
	{"KVM_CAP_EXT_CPUID", kvm.CapExtCPUID},
	{"KVM_CAP_MP_STATE", kvm.CapMPState},
	{"KVM_CAP_IOEVENTFD", kvm.CapIOEventFD},
	{"KVM_CAP_ADJUST_CLOCK", kvm.CapAdjustClock},
	{"KVM_CAP_VCPU_EVENTS", kvm.CapVCPUEvents},
	{"KVM_CAP_DEBUGREGS", kvm.CapDebugRegs},
	{"KVM_CAP_XSAVE", kvm.CapXSave},
	{"KVM_CAP_XCRS", kvm.CapXCRs},
	{"KVM_CAP_TSC_DEADLINE_TIMER", kvm.CapTSCDeadlineTimer},
	{"KVM_CAP_IMMEDIATE_EXIT", kvm.CapImmediateExit},
}

// ProbeKVM opens /dev/kvm, checks its capabilities and measures its speed.
func ProbeKVM(ctx context.Context) KVMFacts {
	f := probeDevice()
	if f.OpenErr == nil && len(f.Missing) == 0 {
		f.Speed, f.MeasuredAt, f.SpeedErr = measureSpeed(ctx)
	}
	return f
}

// probeDevice makes all probes except the measurement. It is quick.
func probeDevice() KVMFacts {
	sys, err := kvm.Open(device)
	if err != nil {
		return KVMFacts{OpenErr: openError(err)}
	}
	defer sys.Close()
	var f KVMFacts
	for _, n := range needed {
		if sys.Check(n.cap) <= 0 {
			f.Missing = append(f.Missing, n.name)
		}
	}
	return f
}

func openError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errNoDevice
	case errors.Is(err, fs.ErrPermission):
		return errDenied
	}
	return fmt.Errorf("open KVM: %w", err)
}
