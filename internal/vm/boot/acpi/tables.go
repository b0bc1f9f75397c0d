// Package acpi builds the tables describing the guest's CPUs, interrupt controllers and devices:
// RSDP, XSDT, FADT (hardware-reduced: no PIC, no PIT, no PM timer), MADT and DSDT. It takes plain
// numbers and returns bytes. Linux checks every checksum and the revision-dependent lengths.
//
// Source: ACPI Specification 6.5.
package acpi

import (
	"encoding/binary"
	"fmt"
)

// Hardware describes the machine. Addresses are guest-physical; ports are x86 I/O ports.
type Hardware struct {
	CPUs int // number of processors; their APIC ids start at 0
	// LAPICAddr and IOAPICAddr are the addresses of the register pages, for the MADT.
	LAPICAddr, IOAPICAddr             uint32
	ResetPort                         uint16   // RESET_REG of the FADT, 8 bits wide
	ResetValue                        uint8    // RESET_VALUE: the byte that resets the machine
	SleepControlPort, SleepStatusPort uint16   // SLEEP_CONTROL_REG and SLEEP_STATUS_REG
	SerialPort                        uint16   // first of the 8 ports of COM1
	SerialIRQ                         uint32   // global system interrupt of COM1
	GenIDAddr                         uint64   // address of the generation ID (ADDR of the VMGENCTR device)
	GenIDIRQ                          uint32   // global system interrupt for a new generation ID
	VirtIO                            []VirtIO // devices VR00, VR01, ... of the DSDT
}

// VirtIO is one virtio-mmio device.
type VirtIO struct {
	Addr, Size uint32 // register window, in bytes
	IRQ        uint32 // global system interrupt
}

const (
	headerSize = 36
	rsdpSize   = 36
	fadtSize   = 276 // revision 6
)

// Build returns the tables laid out from base on, the RSDP first. They take at most limit bytes.
func Build(hw Hardware, base uint64, limit int) ([]byte, error) {
	out := make([]byte, rsdpSize)
	place := func(t []byte) uint64 {
		for len(out)%16 != 0 {
			out = append(out, 0)
		}
		at := base + uint64(len(out))
		out = append(out, t...)
		return at
	}
	dsdtAt := place(table("DSDT", 2, dsdt(hw)))
	fadtAt := place(table("FACP", 6, fadt(hw, dsdtAt)))
	madtAt := place(table("APIC", 5, madt(hw)))
	var entries []byte
	for _, at := range []uint64{fadtAt, madtAt} {
		entries = binary.LittleEndian.AppendUint64(entries, at)
	}
	xsdtAt := place(table("XSDT", 1, entries))
	copy(out, rsdp(xsdtAt))
	if len(out) > limit {
		return nil, fmt.Errorf("ACPI tables take %d bytes, want at most %d", len(out), limit)
	}
	return out, nil
}

// checksum returns the byte that makes the bytes of b sum up to zero.
func checksum(b []byte) (sum byte) {
	for _, c := range b {
		sum -= c
	}
	return sum
}

// table prepends the common header to body (§5.2.6).
func table(signature string, revision byte, body []byte) []byte {
	t := make([]byte, headerSize, headerSize+len(body))
	copy(t, signature)
	t[8] = revision
	copy(t[10:], "FORKD ")
	copy(t[16:], "FORKDVM ")
	binary.LittleEndian.PutUint32(t[24:], 1)
	copy(t[28:], "FRKD")
	binary.LittleEndian.PutUint32(t[32:], 1)
	t = append(t, body...)
	binary.LittleEndian.PutUint32(t[4:], uint32(len(t)))
	t[9] = checksum(t)
	return t
}

func rsdp(xsdt uint64) []byte { // §5.2.5.3
	b := make([]byte, rsdpSize)
	copy(b, "RSD PTR ")
	copy(b[9:], "FORKD ")
	b[15] = 2
	binary.LittleEndian.PutUint32(b[20:], rsdpSize)
	binary.LittleEndian.PutUint64(b[24:], xsdt)
	b[8] = checksum(b[:20])
	b[32] = checksum(b)
	return b
}

// Bits of the FADT's flags (§5.2.9, table 5.10) and of IA-PC boot flags (table 5.11).
const (
	fadtNoPowerButton = 1 << 4
	fadtNoSleepButton = 1 << 5
	fadtResetReg      = 1 << 10
	fadtHWReduced     = 1 << 20
	bootNoVGA         = 1 << 2
	bootNoRTC         = 1 << 5
)

func fadt(hw Hardware, dsdt uint64) []byte {
	b := make([]byte, fadtSize-headerSize)
	put := func(off int, v []byte) { copy(b[off-headerSize:], v) }
	le := binary.LittleEndian
	put(109, le.AppendUint16(nil, bootNoVGA|bootNoRTC))
	put(112, le.AppendUint32(nil, fadtNoPowerButton|fadtNoSleepButton|fadtResetReg|fadtHWReduced))
	put(116, ioRegister(hw.ResetPort))
	put(128, []byte{hw.ResetValue})
	put(131, []byte{5}) // minor version
	put(140, le.AppendUint64(nil, dsdt))
	put(244, ioRegister(hw.SleepControlPort))
	put(256, ioRegister(hw.SleepStatusPort))
	return b
}

// ioRegister returns a generic address structure: one byte in port space (§5.2.3.2).
func ioRegister(port uint16) []byte {
	return binary.LittleEndian.AppendUint64([]byte{1, 8, 0, 1}, uint64(port))
}

func madt(hw Hardware) []byte { // §5.2.12; flags 0: no 8259
	b := binary.LittleEndian.AppendUint32(nil, hw.LAPICAddr)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for i := range hw.CPUs {
		b = append(b, 0, 8, byte(i), byte(i)) // processor local APIC
		b = binary.LittleEndian.AppendUint32(b, 1)
	}
	b = append(b, 1, 12, 0, 0) // I/O APIC 0
	b = binary.LittleEndian.AppendUint32(b, hw.IOAPICAddr)
	return binary.LittleEndian.AppendUint32(b, 0) // its first interrupt
}

func dsdt(hw Hardware) []byte {
	var devices []byte
	for i := range hw.CPUs {
		devices = append(devices, amlDevice(fmt.Sprintf("C%03d", i),
			amlName("_HID", amlString("ACPI0007")), amlName("_UID", amlInt(uint64(i))))...)
	}
	devices = append(devices, amlDevice("COM1",
		amlName("_HID", amlString("PNP0501")), amlName("_UID", amlInt(0)),
		amlName("_CRS", resources(resIO(hw.SerialPort, 8), resInterrupt(hw.SerialIRQ))))...)
	for i, v := range hw.VirtIO {
		devices = append(devices, amlDevice(fmt.Sprintf("VR%02d", i),
			amlName("_HID", amlString("LNRO0005")), amlName("_UID", amlInt(uint64(i))), amlName("_CCA", amlInt(1)),
			amlName("_CRS", resources(resMemory32(v.Addr, v.Size), resInterrupt(v.IRQ))))...)
	}
	devices = append(devices, generationID(hw)...)
	sleep5 := amlName("_S5_", amlPackage(amlInt(5), amlInt(0), amlInt(0), amlInt(0)))
	return append(amlScope("_SB_", devices), sleep5...)
}

// generationID returns the device by which the guest learns of being cloned, and the event device
// with the interrupt for a new ID ("Virtual Machine Generation ID", Microsoft 2012; generic event
// device: ACPI §5.6.9).
func generationID(hw Hardware) []byte {
	vgen := amlDevice("VGEN",
		amlName("_HID", amlString("VMGENCTR")), amlName("_CID", amlString("VM_Gen_Counter")),
		amlName("_DDN", amlString("VM_Gen_Counter")),
		amlName("ADDR", amlPackage(amlInt(hw.GenIDAddr&0xffffffff), amlInt(hw.GenIDAddr>>32))))
	ged := amlDevice("GED_",
		amlName("_HID", amlString("ACPI0013")), amlName("_UID", amlInt(0)),
		amlName("_CRS", resources(resInterrupt(hw.GenIDIRQ))),
		amlMethod("_EVT", 1, true, amlNotify("VGEN", 0x80)))
	return append(vgen, ged...)
}
