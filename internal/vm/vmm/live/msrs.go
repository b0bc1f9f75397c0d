package live

import "slices"

// Memory type range registers (Intel SDM 3A §12.11). KVM keeps them per vCPU, but its index list
// omits them.
const (
	msrMTRRVariable0 = 0x200 // base and mask of 8 ranges, in pairs
	mtrrVariable     = 16
	msrMTRRDefType   = 0x2ff
)

var msrMTRRFixed = []uint32{0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f}

// savedMSRs returns the MSRs of a vCPU's state: KVM's list, and the MSRs that it omits.
func savedMSRs(listed []uint32) []uint32 {
	all := make([]uint32, 0, len(listed)+1+len(msrMTRRFixed)+mtrrVariable)
	all = append(all, listed...)
	add := func(i uint32) {
		if !slices.Contains(listed, i) {
			all = append(all, i)
		}
	}
	add(msrMTRRDefType)
	for _, i := range msrMTRRFixed {
		add(i)
	}
	for i := range uint32(mtrrVariable) {
		add(msrMTRRVariable0 + i)
	}
	return all
}
