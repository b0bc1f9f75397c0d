package extent

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math/bits"
)

// PageSize is the size of a page in bytes.
const PageSize = 4096

// PageSet is a set of pages of guest memory, such as the pages that a tracker has protected or a capture has
// copied. A working set is advice and has a bounded number of runs; a PageSet can hold any set of a memory's
// pages. Offsets and lengths are in bytes and multiples of PageSize. A set knows the memory's size only up to the
// next multiple of 64 pages; a decoder must be given the size.
type PageSet []uint64

// NewPageSet returns an empty set for memory of this many bytes.
func NewPageSet(memory int64) PageSet { return make(PageSet, (memory/PageSize+63)/64) }

// Add adds a run of pages.
func (s PageSet) Add(offset, length int64) {
	s.each(offset, length, func(w *uint64, mask uint64) { *w |= mask })
}

// Remove removes a run of pages.
func (s PageSet) Remove(offset, length int64) {
	s.each(offset, length, func(w *uint64, mask uint64) { *w &^= mask })
}

// each calls fn for each word of the run, with a mask of the run's bits in it.
func (s PageSet) each(offset, length int64, fn func(w *uint64, mask uint64)) {
	for p, end := offset/PageSize, (offset+length)/PageSize; p < end; {
		next := min(end, (p/64+1)*64)
		mask := ^uint64(0) << (p % 64)
		if rest := next % 64; rest != 0 {
			mask &= 1<<rest - 1
		}
		fn(&s[p/64], mask)
		p = next
	}
}

// Bytes returns the size of the set's pages.
func (s PageSet) Bytes() (n int64) {
	for _, w := range s {
		n += int64(bits.OnesCount64(w))
	}
	return n * PageSize
}

// Empty reports whether the set has no pages.
func (s PageSet) Empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// Runs returns the set's pages in ascending runs of maximal length.
func (s PageSet) Runs() iter.Seq[Run] { return s.Within(Run{Length: int64(len(s)) * 64 * PageSize}) }

// Within returns the set's pages in a run, in ascending order.
func (s PageSet) Within(run Run) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		last := min(run.End()/PageSize, int64(len(s))*64)
		s := s[:(last+63)/64] // ignore the rest
		for p := s.next(run.Offset/PageSize, true); p < last; {
			end := min(s.next(p, false), last)
			if !yield(Run{Offset: p * PageSize, Length: (end - p) * PageSize}) {
				return
			}
			p = s.next(end, true)
		}
	}
}

// next returns the first page from p on that is in the set, or, if in is false, not in it.
func (s PageSet) next(p int64, in bool) int64 {
	for ; p < int64(len(s))*64; p = (p/64 + 1) * 64 {
		w := s[p/64]
		if !in {
			w = ^w
		}
		if w >>= p % 64; w != 0 {
			return p + int64(bits.TrailingZeros64(w))
		}
	}
	return int64(len(s)) * 64
}

// Encode returns the set in its file format: its words in little-endian order.
func (s PageSet) Encode() []byte {
	b := make([]byte, 0, 8*len(s))
	for _, w := range s {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// DecodePageSet reads the file of a page set for memory of this many bytes, from its beginning.
func DecodePageSet(r io.ReaderAt, memory int64) (PageSet, error) {
	s := NewPageSet(memory)
	b := make([]byte, 8*len(s)+1)
	n, err := r.ReadAt(b, 0)
	if n != len(b)-1 || err != io.EOF {
		return nil, fmt.Errorf("read page set: %d bytes or more, want %d (%v)", n, len(b)-1, err)
	}
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	if pages := memory / PageSize; pages%64 != 0 && s[len(s)-1]>>(pages%64) != 0 {
		return nil, fmt.Errorf("read page set: it has pages beyond the %d of the memory", pages)
	}
	return s, nil
}
