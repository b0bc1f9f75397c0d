package virtio

import (
	"sync/atomic"
	"unsafe"
)

// The two sides of a ring order their accesses by the 16-bit index fields. Go has no 16-bit
// atomics, so a field is accessed through the aligned 32-bit word around it; the word's other half
// keeps its value. Go's atomics are sequentially consistent, which covers the full barriers of
// virtio 1.2 §2.7. Words are little-endian on every architecture this code is built for.

// word is an aligned 32-bit word of guest memory.
type word struct{ p *uint32 }

// wordAt returns the word at b[off:]. It returns false if the word is not entirely in b or if its
// host address is not a multiple of 4.
func wordAt(b []byte, off int) (word, bool) {
	if off < 0 || off > len(b)-4 {
		return word{}, false
	}
	// SAFETY: four bytes from b[off] lie inside b, as just checked; the address
	// is checked for alignment before it is ever dereferenced.
	p := unsafe.Pointer(&b[off])
	if uintptr(p)%4 != 0 {
		return word{}, false
	}
	return word{(*uint32)(p)}, true
}

func (w word) load() uint32   { return atomic.LoadUint32(w.p) }
func (w word) store(v uint32) { atomic.StoreUint32(w.p, v) }

// Half is a 16-bit field of guest memory with atomic access by both sides.
type Half struct {
	w     word
	shift uint
}

// HalfAt returns the 16-bit field at the 2-aligned address gpa.
func HalfAt(m Memory, gpa GPA) (Half, error) {
	b, err := m.Slice(gpa&^3, 4)
	if err != nil {
		return Half{}, err
	}
	w, ok := wordAt(b, 0)
	if !ok || gpa%2 != 0 {
		return Half{}, errUnaligned
	}
	return Half{w, uint(gpa&2) * 8}, nil
}

// Load reads the field with acquire semantics.
func (h Half) Load() uint16 { return uint16(h.w.load() >> h.shift) }

// maxStoreTries limits the retries of Store if a guest keeps writing the other half of the word.
// After as many lost races Store overwrites the other half.
const maxStoreTries = 1000

// Store writes the field with release semantics, as a full barrier.
func (h Half) Store(v uint16) {
	mask := uint32(0xffff) << h.shift
	for range maxStoreTries {
		old := h.w.load()
		if atomic.CompareAndSwapUint32(h.w.p, old, old&^mask|uint32(v)<<h.shift) {
			return
		}
	}
	h.w.store(h.w.load()&^mask | uint32(v)<<h.shift)
}
