package live

import "slices"

// Memory type range registers (Intel SDM 3A §12.11). KVM keeps them per vCPU, and
// its index list does not name them.
const (
	msrMTRRVariable0 = 0x200 // base and mask of 8 ranges, in pairs
	mtrrVariable     = 16
	msrMTRRDefType   = 0x2ff
)

var msrMTRRFixed = []uint32{0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f}

// savedMSRs are the MSRs that make up a vCPU's state: what KVM lists, and what it keeps beside that.
func savedMSRs(listed []uint32) []uint32 {
	more := append([]uint32{msrMTRRDefType}, msrMTRRFixed...)
	for i := range uint32(mtrrVariable) {
		more = append(more, msrMTRRVariable0+i)
	}
	all := slices.Clone(listed)
	for _, i := range more {
		if !slices.Contains(listed, i) {
			all = append(all, i)
		}
	}
	return all
}
