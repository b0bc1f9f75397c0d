package kvm

import "unsafe"

// block is the set of structures that are saved in the kernel's layout.
type block interface {
	Regs | SRegs | LAPIC | XSave | XCRs | DebugRegs | VCPUEvents | IRQChipState
}

// Bytes returns a structure as the kernel's bytes, for saving and loading. The result aliases p.
func Bytes[T block](p *T) []byte {
	// SAFETY: the structures hold integers only and have no padding the kernel does not know.
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}
