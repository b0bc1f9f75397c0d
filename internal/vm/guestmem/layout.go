package guestmem

// GPA is a guest-physical address.
type GPA = uint64

// The 32-bit hole for devices: memory beyond LowMax continues at HighStart, as on every PC.
const (
	LowMax    GPA = 3 << 30
	HighStart GPA = 4 << 30
)

// Region is a run of guest-physical memory and its place in the linear image (the order in which a
// snapshot stores it).
type Region struct {
	GPA    GPA   // address of the first byte
	Size   int64 // bytes
	Offset int64 // in the linear image, bytes
}

// Layout returns the regions of size bytes of memory: one region, or two around the hole.
func Layout(size int64) []Region {
	if size <= int64(LowMax) {
		return []Region{{Size: size}}
	}
	return []Region{{Size: int64(LowMax)}, {GPA: HighStart, Size: size - int64(LowMax), Offset: int64(LowMax)}}
}
