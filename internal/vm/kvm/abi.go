package kvm

// ioctl numbers (nr part) of include/uapi/linux/kvm.h.
const (
	nrGetAPIVersion    = 0x00
	nrCreateVM         = 0x01
	nrGetMSRIndexList  = 0x02
	nrCheckExtension   = 0x03
	nrGetVCPUMmapSize  = 0x04
	nrGetSupportedCPU  = 0x05
	nrCreateVCPU       = 0x41
	nrSetUserMemRegion = 0x46
	nrSetTSSAddr       = 0x47
	nrSetIdentityMap   = 0x48
	nrCreateIRQChip    = 0x60
	nrIRQLine          = 0x61
	nrGetIRQChip       = 0x62
	nrSetIRQChip       = 0x63
	nrIOEventFD        = 0x79
	nrSetClock         = 0x7b
	nrGetClock         = 0x7c
	nrRun              = 0x80
	nrGetRegs          = 0x81
	nrSetRegs          = 0x82
	nrGetSRegs         = 0x83
	nrSetSRegs         = 0x84
	nrGetMSRs          = 0x88
	nrSetMSRs          = 0x89
	nrGetLAPIC         = 0x8e
	nrSetLAPIC         = 0x8f
	nrSetCPUID2        = 0x90
	nrGetCPUID2        = 0x91
	nrGetMPState       = 0x98
	nrSetMPState       = 0x99
	nrGetVCPUEvents    = 0x9f
	nrSetVCPUEvents    = 0xa0
	nrGetDebugRegs     = 0xa1
	nrSetDebugRegs     = 0xa2
	nrSetTSCKHz        = 0xa2 // without argument structure, hence another request than the line above
	nrGetTSCKHz        = 0xa3
	nrGetXSave         = 0xa4
	nrSetXSave         = 0xa5
	nrGetXCRs          = 0xa6
	nrSetXCRs          = 0xa7
	nrKVMClockCtrl     = 0xad
	nrPreFaultMemory   = 0xd5
	nrSetDeviceAttr    = 0xe1
	nrGetDeviceAttr    = 0xe2
	nrHasDeviceAttr    = 0xe3
)

// Cap is a KVM capability number, for System.Check.
type Cap int

const (
	CapIRQChip          Cap = 0
	CapUserMemory       Cap = 3
	CapSetTSSAddr       Cap = 4
	CapExtCPUID         Cap = 7
	CapNrVCPUs          Cap = 9
	CapMPState          Cap = 14
	CapIOEventFD        Cap = 36
	CapAdjustClock      Cap = 39
	CapVCPUEvents       Cap = 41
	CapDebugRegs        Cap = 50
	CapXSave            Cap = 55
	CapXCRs             Cap = 56
	CapTSCControl       Cap = 60
	CapGetTSCKHz        Cap = 61
	CapMaxVCPUs         Cap = 66
	CapTSCDeadlineTimer Cap = 72
	CapKVMClockCtrl     Cap = 76
	CapImmediateExit    Cap = 136
)

// Exit reasons of Run.
const (
	ExitUnknown       = 0
	ExitIO            = 2
	ExitHLT           = 5
	ExitMMIO          = 6
	ExitShutdown      = 8
	ExitFailEntry     = 9
	ExitIntr          = 10
	ExitInternalError = 17
	ExitSystemEvent   = 24
)

// Regs are the general-purpose registers (struct kvm_regs).
type Regs struct {
	RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP uint64
	R8, R9, R10, R11, R12, R13, R14, R15   uint64
	RIP, RFLAGS                            uint64
}

// Segment is a segment register with its hidden part (struct kvm_segment).
type Segment struct {
	Base                         uint64
	Limit                        uint32
	Selector                     uint16
	Type, Present, DPL, DB, S, L uint8
	G, AVL, Unusable, _          uint8
}

// DTable is GDTR or IDTR (struct kvm_dtable).
type DTable struct {
	Base  uint64
	Limit uint16
	_     [3]uint16
}

// SRegs are the special registers (struct kvm_sregs).
type SRegs struct {
	CS, DS, ES, FS, GS, SS, TR, LDT         Segment
	GDT, IDT                                DTable
	CR0, CR2, CR3, CR4, CR8, EFER, APICBase uint64
	InterruptBitmap                         [4]uint64
}

// CPUIDEntry is one leaf as the guest sees it (struct kvm_cpuid_entry2).
type CPUIDEntry struct {
	Function, Index, Flags uint32
	EAX, EBX, ECX, EDX     uint32
	_                      [3]uint32
}

// CPUIDSignificantIndex marks a leaf with subleaves (KVM_CPUID_FLAG_SIGNIFCANT_INDEX).
const CPUIDSignificantIndex = 1

// MSR is one model-specific register and its value.
type MSR struct {
	Index uint32
	Value uint64
}

// ClockData is the paravirtual clock of a VM (struct kvm_clock_data).
type ClockData struct {
	Clock    uint64 // nanoseconds
	Flags    uint32
	_        uint32
	Realtime uint64
	HostTSC  uint64
	_        [4]uint32
}

// Opaque register blocks, saved and restored in the kernel's layout.
type (
	// LAPIC is the local APIC's register page.
	LAPIC [1024]byte
	// XSave is the FPU and vector state.
	XSave [4096]byte
	// XCRs are the extended control registers.
	XCRs [392]byte
	// DebugRegs are DR0 to DR7.
	DebugRegs [128]byte
	// VCPUEvents are pending exceptions, interrupts and NMIs.
	VCPUEvents [64]byte
	// IRQChipState is one interrupt controller; ID is set by the caller.
	IRQChipState struct {
		ID   uint32
		_    uint32
		Data [512]byte
	}
)

// Interrupt controllers of a VM (struct kvm_irqchip chip_id).
const (
	ChipPICMaster = 0
	ChipPICSlave  = 1
	ChipIOAPIC    = 2
)

// IOAPICPins is the number of interrupt lines (KVM_IOAPIC_NUM_PINS of x86).
const IOAPICPins = 24

type userMemoryRegion struct {
	Slot, Flags uint32
	GPA         uint64
	Size        uint64
	UserAddr    uint64
}

// irqLevel is struct kvm_irq_level.
type irqLevel struct{ IRQ, Level uint32 }

// deviceAttr is struct kvm_device_attr.
type deviceAttr struct {
	Flags, Group uint32
	Attr         uint64
	Addr         uint64
}

type ioeventfd struct {
	DataMatch uint64
	Addr      uint64
	Len       uint32
	FD        int32
	Flags     uint32
	_         [36]byte
}
