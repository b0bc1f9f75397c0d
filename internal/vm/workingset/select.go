package workingset

import (
	"cmp"
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
)

// blockPages is the number of pages mapped by one page of a page table.
const blockPages = 512

// ReadOnly returns the read-only part of the set, limited to the given number of 2 MiB blocks,
// chosen by their share of it. Mapping it gives the guest no private page, but each block needs
// page tables, which are memory too. So a few blocks with nearly all pages are preferred over many
// with a page each.
func (s Set) ReadOnly(blocks int) Set {
	pages := map[int64]int64{} // by block
	for r := range s.readPerBlock() {
		pages[block(r)] += r.Length / pageSize
	}
	order := make([]int64, 0, len(pages))
	for b := range pages {
		order = append(order, b)
	}
	slices.SortFunc(order, func(a, b int64) int { return cmp.Or(cmp.Compare(pages[b], pages[a]), cmp.Compare(a, b)) })
	for _, b := range order[min(blocks, len(order)):] {
		delete(pages, b)
	}
	var out Writer
	for r := range s.readPerBlock() {
		if _, chosen := pages[block(r)]; chosen {
			out.put(r)
		}
	}
	return Set{out.body}
}

// Without returns the part of the set remaining after other was mapped: pages not in other, and
// pages written here and only read there.
func (s Set) Without(other Set) Set {
	var out Writer
	rest := other.runs
	for r := range s.Runs() {
		for len(rest) >= runSize && decodeRun(rest).End() <= r.Offset {
			rest = rest[runSize:]
		}
		for b := rest; len(b) >= runSize && decodeRun(b).Offset < r.End(); b = b[runSize:] {
			known := decodeRun(b)
			if r.Written && !known.Written {
				continue
			}
			if r.Offset < known.Offset {
				out.put(Run{r.Clip(r.Offset, known.Offset), r.Written})
			}
			r.Run = r.Clip(known.End(), r.End())
		}
		if r.Length > 0 {
			out.put(r)
		}
	}
	return Set{out.body}
}

// readPerBlock yields the read-only runs, cut at the ends of blocks.
func (s Set) readPerBlock() func(yield func(Run) bool) {
	return func(yield func(Run) bool) {
		for r := range s.Runs() {
			for !r.Written && r.Length > 0 {
				end := min(r.End(), (block(r)+1)*blockPages*pageSize)
				if !yield(Run{Run: extent.Run{Offset: r.Offset, Length: end - r.Offset}}) {
					return
				}
				r.Run = r.Clip(end, r.End())
			}
		}
	}
}

func block(r Run) int64 { return r.Offset / (blockPages * pageSize) }
