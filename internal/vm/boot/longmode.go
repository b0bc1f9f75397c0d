package boot

import (
	"encoding/binary"
	"fmt"
)

// Start is the state in which the first vCPU enters the kernel: 64-bit mode, paging on with the
// first GiB mapped one to one, interrupts off, RSI at the boot parameters (boot.rst, "64-bit boot
// protocol").
type Start struct {
	// RIP is the kernel's entry point, RSP the top of its stack, RSI
	// the guest-physical address of the boot parameters.
	RIP, RSP, RSI uint64
	CR3           uint64 // guest-physical address of the PML4
	GDTBase       uint64 // guest-physical address of the GDT
	GDTLimit      uint16 // offset of the GDT's last byte
	// Selectors of flat code, data and task segments in the GDT.
	CS, DS, TR uint16
}

// Control register bits of the start state.
const (
	CR0PE   = 1 << 0
	CR0PG   = 1 << 31
	CR4PAE  = 1 << 5
	EFERLME = 1 << 8
	EFERLMA = 1 << 10
)

// gdt: null, null, 64-bit code, data, busy task (Intel SDM 3A §3.4.5).
var gdt = [5]uint64{0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x008f8b000000ffff}

func writeTables(mem memory) error {
	low, err := mem.Slice(0, pdAddr+0x1000)
	if err != nil {
		return fmt.Errorf("place page tables: %w", err)
	}
	le := binary.LittleEndian
	for i, d := range gdt {
		le.PutUint64(low[gdtAddr+8*i:], d)
	}
	const presentWrite, large = 0x3, 0x80
	le.PutUint64(low[pml4Addr:], pdptAddr|presentWrite)
	le.PutUint64(low[pdptAddr:], pdAddr|presentWrite)
	for i := range uint64(512) {
		le.PutUint64(low[pdAddr+8*i:], i<<21|presentWrite|large)
	}
	return nil
}

func start(entry uint64) Start {
	return Start{
		RIP: entry, RSP: stackAddr, RSI: bootParamAddr, CR3: pml4Addr,
		GDTBase: gdtAddr, GDTLimit: uint16(8*len(gdt) - 1),
		CS: bootCodeSel, DS: bootDataSel, TR: bootTaskSel,
	}
}
