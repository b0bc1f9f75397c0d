package vmm

import (
	"math/bits"

	"github.com/forkd/forkd/internal/guestmem"
)

// pageRun is a run of pages, in bytes of the linear memory.
type pageRun struct{ offset, length int64 }

func size(runs []pageRun) (n int64) {
	for _, r := range runs {
		n += r.length
	}
	return n
}

// pageSet is a set of pages, one bit each.
type pageSet []uint64

func newPageSet(memory int64) pageSet {
	return make(pageSet, (memory/guestmem.PageSize+63)/64)
}

func (s pageSet) add(r pageRun) {
	for p := r.offset / guestmem.PageSize; p < (r.offset+r.length)/guestmem.PageSize; p++ {
		s[p/64] |= 1 << (p % 64)
	}
}

func (s pageSet) bytes() (n int64) {
	for _, w := range s {
		n += int64(bits.OnesCount64(w))
	}
	return n * guestmem.PageSize
}

// runs calls fn for runs of the set's pages, in rising order.
func (s pageSet) runs(fn func(pageRun) error) error {
	total := int64(len(s)) * 64
	for p := s.next(0, true); p < total; {
		end := s.next(p, false)
		if err := fn(pageRun{p * guestmem.PageSize, (end - p) * guestmem.PageSize}); err != nil {
			return err
		}
		p = s.next(end, true)
	}
	return nil
}

// next is the first page from p on that is in the set, or not in it.
func (s pageSet) next(p int64, in bool) int64 {
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
