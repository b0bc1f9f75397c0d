package boot

import (
	"encoding/binary"
	"fmt"
)

// Offsets into the zero page (Documentation/arch/x86/zero-page.rst, boot.rst).
const (
	zpACPIRSDP     = 0x070
	zpE820Entries  = 0x1e8
	zpBootFlag     = 0x1fe
	zpHeader       = 0x202
	zpVersion      = 0x206
	zpTypeOfLoader = 0x210
	zpLoadFlags    = 0x211
	zpRamdiskImage = 0x218
	zpRamdiskSize  = 0x21c
	zpCmdlinePtr   = 0x228
	zpAlignment    = 0x230
	zpCmdlineSize  = 0x238
	zpE820Table    = 0x2d0
	e820EntrySize  = 20
)

// region is an entry of the guest's memory map.
type region struct {
	addr, size uint64
	kind       uint32
}

// memoryMap returns the memory map reported to the guest.
func memoryMap(ram []region) []region {
	out := []region{
		{0, ebdaStart, e820RAM},
		{ebdaStart, highRAM - ebdaStart, e820Reserved}, // BIOS area: holds the ACPI tables
	}
	for _, r := range ram {
		if r.addr == 0 {
			r.addr, r.size = highRAM, r.size-highRAM
		}
		out = append(out, r)
	}
	return out
}

type initrd struct{ addr, size uint64 }

// writeZeroPage fills in struct boot_params.
func writeZeroPage(mem memory, ram []region, rd initrd) error {
	zp, err := mem.Slice(bootParamAddr, zeroPageSize)
	if err != nil {
		return fmt.Errorf("place boot parameters: %w", err)
	}
	clear(zp)
	le := binary.LittleEndian
	le.PutUint64(zp[zpACPIRSDP:], acpiStart)
	le.PutUint16(zp[zpBootFlag:], 0xaa55)
	copy(zp[zpHeader:], "HdrS")
	le.PutUint16(zp[zpVersion:], 0x020f)
	zp[zpTypeOfLoader] = 0xff // a loader without an assigned number
	zp[zpLoadFlags] = 1       // LOADED_HIGH
	le.PutUint32(zp[zpRamdiskImage:], uint32(rd.addr))
	le.PutUint32(zp[zpRamdiskSize:], uint32(rd.size))
	le.PutUint32(zp[zpCmdlinePtr:], cmdlineAddr)
	le.PutUint32(zp[zpCmdlineSize:], cmdlineMax-1)
	le.PutUint32(zp[zpAlignment:], 0x200000)
	entries := memoryMap(ram)
	zp[zpE820Entries] = byte(len(entries))
	for i, e := range entries {
		b := zp[zpE820Table+i*e820EntrySize:]
		le.PutUint64(b, e.addr)
		le.PutUint64(b[8:], e.size)
		le.PutUint32(b[16:], e.kind)
	}
	return nil
}

func writeCmdline(mem memory, cmdline string) error {
	if len(cmdline) >= cmdlineMax {
		return fmt.Errorf("kernel command line has %d bytes, want fewer than %d", len(cmdline), cmdlineMax)
	}
	b, err := mem.Slice(cmdlineAddr, len(cmdline)+1)
	if err != nil {
		return fmt.Errorf("place command line: %w", err)
	}
	copy(b, cmdline)
	b[len(cmdline)] = 0
	return nil
}
