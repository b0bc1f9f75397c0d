package virtio

import (
	"fmt"
	"math"
)

// GPA is a guest-physical address. It is an alias: an address space can satisfy Memory without
// importing this package.
type GPA = uint64

// Memory is bounds-checked access to guest-physical memory.
type Memory interface {
	// Slice returns the n bytes of guest memory at gpa without a copy, valid while the VM lives. It
	// returns an error if any byte lies outside RAM. Slice must not access the memory itself: a
	// restored device requests its rings before the memory behind them is mapped. Host and guest
	// addresses must be equal modulo 4 (pages always are).
	Slice(gpa uint64, n int) ([]byte, error)
}

// sliceAt calls Slice with an address and length chosen by the guest.
func sliceAt(m Memory, gpa GPA, n uint64) ([]byte, error) {
	if n > math.MaxInt32 || gpa+n < gpa {
		return nil, fmt.Errorf("guest range %#x+%#x wraps or is too long", gpa, n)
	}
	return m.Slice(gpa, int(n))
}

// Buffers is a list of guest memory slices forming one byte stream.
type Buffers [][]byte

// Len returns the total length in bytes.
func (b Buffers) Len() int {
	n := 0
	for _, s := range b {
		n += len(s)
	}
	return n
}

// Range appends to dst the slices that cover n bytes from offset off, or fewer if the stream ends
// before. It copies no data; dst may be a scratch list.
func (b Buffers) Range(dst Buffers, off, n int) Buffers {
	for _, s := range b {
		if n <= 0 {
			break
		}
		if off >= len(s) {
			off -= len(s)
			continue
		}
		s = s[off:]
		off = 0
		if len(s) > n {
			s = s[:n]
		}
		n -= len(s)
		dst = append(dst, s)
	}
	return dst
}

// CopyOut copies from the stream at off into p and returns the bytes copied.
func (b Buffers) CopyOut(p []byte, off int) int {
	done := 0
	for _, s := range b {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		done += copy(p[done:], s[off:])
		off = 0
		if done == len(p) {
			break
		}
	}
	return done
}

// CopyIn copies p into the stream at off and returns the bytes copied.
func (b Buffers) CopyIn(off int, p []byte) int {
	done := 0
	for _, s := range b {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		done += copy(s[off:], p[done:])
		off = 0
		if done == len(p) {
			break
		}
	}
	return done
}
