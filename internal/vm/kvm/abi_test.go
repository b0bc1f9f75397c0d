package kvm

import (
	"testing"
	"unsafe"
)

// The kernel reads and writes these by size: a wrong layout corrupts memory.
func TestLayoutsMatchTheKernels(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"kvm_regs":                    {unsafe.Sizeof(Regs{}), 144},
		"kvm_segment":                 {unsafe.Sizeof(Segment{}), 24},
		"kvm_sregs":                   {unsafe.Sizeof(SRegs{}), 312},
		"kvm_cpuid_entry2":            {unsafe.Sizeof(CPUIDEntry{}), cpuidEntrySize},
		"kvm_clock_data":              {unsafe.Sizeof(ClockData{}), 48},
		"kvm_irqchip":                 {unsafe.Sizeof(IRQChipState{}), 520},
		"kvm_userspace_memory_region": {unsafe.Sizeof(userMemoryRegion{}), 32},
		"kvm_ioeventfd":               {unsafe.Sizeof(ioeventfd{}), 64},
		"kvm_irq_level":               {unsafe.Sizeof(irqLevel{}), 8},
		"kvm_device_attr":             {unsafe.Sizeof(deviceAttr{}), 24},
		"kvm_pre_fault_memory":        {unsafe.Sizeof(preFaultMemory{}), 64},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %d bytes, want %d", name, c[0], c[1])
		}
	}
}

func TestRequestNumbers(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"KVM_GET_REGS":         {ioc(iocRead, nrGetRegs, 144), 0x8090AE81},
		"KVM_SET_SREGS":        {ioc(iocWrite, nrSetSRegs, 312), 0x4138AE84},
		"KVM_GET_MSRS":         {ioc(iocRead|iocWrite, nrGetMSRs, 8), 0xC008AE88},
		"KVM_IOEVENTFD":        {ioc(iocWrite, nrIOEventFD, 64), 0x4040AE79},
		"KVM_SET_IRQCHIP":      {ioc(iocRead, nrSetIRQChip, 520), 0x8208AE63},
		"KVM_PRE_FAULT_MEMORY": {ioc(iocRead|iocWrite, nrPreFaultMemory, 64), 0xC040AED5},
		"KVM_IRQ_LINE":         {ioc(iocWrite, nrIRQLine, 8), 0x4008AE61},
		"KVM_SET_DEVICE_ATTR":  {ioc(iocWrite, nrSetDeviceAttr, 24), 0x4018AEE1},
		"KVM_HAS_DEVICE_ATTR":  {ioc(iocWrite, nrHasDeviceAttr, 24), 0x4018AEE3},
		"KVM_GET_CLOCK":        {ioc(iocRead, nrGetClock, 48), 0x8030AE7C},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %#x, want %#x", name, c[0], c[1])
		}
	}
}

func TestCPUIDRoundTrip(t *testing.T) {
	in := []CPUIDEntry{{Function: 1, EAX: 2, EBX: 3, ECX: 4, EDX: 5}, {Function: 7, Index: 1, Flags: CPUIDSignificantIndex, EDX: 9}}
	out := decodeCPUID(encodeCPUID(in))
	if len(out) != 2 || out[0] != in[0] || out[1] != in[1] {
		t.Fatalf("got %+v, want %+v", out, in)
	}
}
