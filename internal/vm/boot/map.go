package boot

// Guest-physical addresses of the VMM's data below 1 MiB.
const (
	gdtAddr       = 0x500
	bootParamAddr = 0x7000
	pml4Addr      = 0x9000
	pdptAddr      = 0xa000
	pdAddr        = 0xb000 // one table: 1 GiB in 2 MiB pages
	stackAddr     = 0x8ff0
	cmdlineAddr   = 0x20000
	cmdlineMax    = 2048 // COMMAND_LINE_SIZE of x86

	ebdaStart   = 0x9fc00 // end of usable low memory
	acpiStart   = 0xe0000 // the RSDP's search area, with all tables
	acpiEnd     = 0x100000
	highRAM     = 0x100000 // kernels load here and above
	genIDOffset = 0x1f000  // offset of the generation ID in the ACPI area: its last page
)

// GenIDAddr is the guest-physical address of the 16-byte VM generation ID.
const GenIDAddr = acpiStart + genIDOffset

// Device addresses and interrupt lines, described to the guest by ACPI.
const (
	MMIOBase   = 0xd0000000 // virtio-mmio device i is at MMIOBase + i*MMIOStride
	MMIOStride = 0x1000
	// MaxMMIO is the number of slots for virtio-mmio devices.
	MaxMMIO = 18

	SerialPort = 0x3f8
	freeIRQ    = 3
	SerialIRQ  = 4
	GenIDIRQ   = 5
	mmioIRQ0   = 6
	clockIRQ   = 8

	// ResetPort and SleepPort are the ACPI reset and sleep control registers (ports, one byte each).
	ResetPort      = 0x600
	SleepPort      = 0x601
	sleepStatPort  = 0x602
	ResetValue     = 0x06
	SleepS5        = 5<<2 | 0x20 // SLP_TYP 5, SLP_EN: the value for power off
	lapicAddr      = 0xfee00000
	ioapicAddr     = 0xfec00000
	TSSAddr        = 0xfffbd000 // three pages for Intel's real mode, below the BIOS area
	IdentityMap    = 0xfffbc000
	bootCodeSel    = 0x10 // __BOOT_CS
	bootDataSel    = 0x18 // __BOOT_DS
	bootTaskSel    = 0x20
	e820RAM        = 1
	e820Reserved   = 2
	zeroPageSize   = 4096
	setupHeaderOff = 0x1f1
)

// MMIOIRQ returns the interrupt line of virtio-mmio device i: from 6 on to the I/O APIC's last, 23.
// Line 3 replaces line 8: KVM takes 8 for the clock's, and makes the guest exit at each end of such
// an interrupt.
func MMIOIRQ(i int) uint32 {
	line := uint32(mmioIRQ0 + i)
	if line == clockIRQ {
		return freeIRQ
	}
	return line
}

// MMIOAddr returns the guest-physical address of virtio-mmio device i.
func MMIOAddr(i int) uint64 { return MMIOBase + uint64(i)*MMIOStride }
