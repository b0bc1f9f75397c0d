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
	// The order is the kernel's, not that of the instruction encoding.
	RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP uint64
	// R8 to R15 exist only in 64-bit mode (SDM 1 §3.4.1.1).
	R8, R9, R10, R11, R12, R13, R14, R15 uint64
	// RIP is the address of the next instruction. RFLAGS holds the status and control flags.
	RIP, RFLAGS uint64
}

// Segment is a segment register with its hidden part (struct kvm_segment).
type Segment struct {
	Base     uint64 // linear address of offset 0
	Limit    uint32 // in bytes, independent of G
	Selector uint16 // the visible part
	// The attributes have the names of the segment descriptor (SDM 3A §3.4.5): Type has 4 bits, DPL is
	// 0 to 3, all others are 0 or 1. S is 0 for system segments. L marks 64-bit code.
	Type, Present, DPL, DB, S, L uint8
	// Unusable is 1 if the register holds no segment, for example after a null selector was loaded.
	G, AVL, Unusable, _ uint8
}

// DTable is GDTR or IDTR (struct kvm_dtable).
type DTable struct {
	Base  uint64 // linear address of the table
	Limit uint16 // offset of the table's last byte
	_     [3]uint16
}

// SRegs are the special registers (struct kvm_sregs).
type SRegs struct {
	// TR and LDT are system segments: the task register and LDTR.
	CS, DS, ES, FS, GS, SS, TR, LDT Segment
	GDT, IDT                        DTable // GDTR and IDTR
	// CR8 is the task priority. EFER and APICBase are MSRs (IA32_EFER, IA32_APIC_BASE).
	CR0, CR2, CR3, CR4, CR8, EFER, APICBase uint64
	// InterruptBitmap has the bit of an external interrupt that the APIC has acknowledged and the CPU
	// has not yet received. At most one bit is set (api.rst, KVM_GET_SREGS).
	InterruptBitmap [4]uint64
}

// CPUIDEntry is one leaf as the guest sees it (struct kvm_cpuid_entry2).
type CPUIDEntry struct {
	// Function is the leaf (EAX of the query). Index is the subleaf (ECX), if Flags has
	// CPUIDSignificantIndex.
	Function, Index, Flags uint32
	EAX, EBX, ECX, EDX     uint32 // the result
	_                      [3]uint32
}

// CPUIDSignificantIndex marks a leaf with subleaves (KVM_CPUID_FLAG_SIGNIFCANT_INDEX).
const CPUIDSignificantIndex = 1

// MSR is one model-specific register and its value.
type MSR struct {
	Index uint32 // address of the register, as in ECX of RDMSR
	Value uint64 // EDX:EAX of RDMSR
}

// ClockData is the paravirtual clock of a VM (struct kvm_clock_data).
type ClockData struct {
	Clock    uint64 // nanoseconds
	Flags    uint32 // KVM_CLOCK_*: REALTIME and HOST_TSC mark their fields as valid
	_        uint32
	Realtime uint64 // the host's CLOCK_REALTIME at Clock, in ns
	HostTSC  uint64 // the host's TSC at Clock
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
		ID   uint32 // one of the Chip constants
		_    uint32
		Data [512]byte // struct kvm_pic_state or kvm_ioapic_state
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
