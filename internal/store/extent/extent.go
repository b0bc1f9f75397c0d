package extent

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"slices"
	"sort"
)

// Run is a part of an image, in bytes.
type Run struct {
	Offset, Length int64
}

// End returns the offset of the first byte after the run.
func (r Run) End() int64 { return r.Offset + r.Length }

// Clip returns the part of the run between two offsets. If there is no such part, its length is zero or negative.
func (r Run) Clip(from, to int64) Run {
	at := max(r.Offset, from)
	return Run{Offset: at, Length: min(r.End(), to) - at}
}

// Bytes returns the total length of the runs.
func Bytes(runs []Run) (n int64) {
	for _, r := range runs {
		n += r.Length
	}
	return n
}

// First returns the first n bytes of runs, rounded up to whole pages.
func First(runs []Run, n int64) []Run {
	for i, r := range runs {
		if n <= r.Length {
			out := slices.Clone(runs[:i+1])
			out[i].Length = min(r.Length, (max(n, 0)+PageSize-1)/PageSize*PageSize)
			if out[i].Length == 0 {
				out = out[:i]
			}
			return out
		}
		n -= r.Length
	}
	return runs
}

// Joined returns the union of runs as the smallest number of ascending runs. It reuses the list's memory.
func Joined(runs []Run) []Run {
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Offset, b.Offset) })
	out := runs[:0]
	for _, r := range runs {
		if n := len(out); n > 0 && r.Offset <= out[n-1].End() {
			out[n-1].Length = max(out[n-1].End(), r.End()) - out[n-1].Offset
			continue
		}
		out = append(out, r)
	}
	return out
}

// Extent is a part of an image with its content in a range of a file. All values are in bytes.
type Extent struct {
	File           *os.File // nil means all zeros
	FileOffset     int64    // start of the content in File; 0 without a file
	Offset, Length int64    // in the image
}

// Run returns the part of the image.
func (e Extent) Run() Run { return Run{Offset: e.Offset, Length: e.Length} }

// End returns the image offset of the first byte after the extent.
func (e Extent) End() int64 { return e.Offset + e.Length }

// Zero reports whether the extent is all zeros.
func (e Extent) Zero() bool { return e.File == nil }

// Clip returns the part of the extent between two offsets of the image. If there is no such part, its length is
// zero or negative.
func (e Extent) Clip(from, to int64) Extent {
	r := e.Run().Clip(from, to)
	if !e.Zero() {
		e.FileOffset += r.Offset - e.Offset
	}
	e.Offset, e.Length = r.Offset, r.Length
	return e
}

// continues reports whether e directly follows the extent before, both in the image and in the file.
func (e Extent) continues(before Extent) bool {
	return before.End() == e.Offset && before.File == e.File &&
		(e.Zero() || before.FileOffset+before.Length == e.FileOffset)
}

// Append adds an extent to an ascending list, or extends the last one.
func Append(list []Extent, e Extent) []Extent {
	if last := len(list) - 1; last >= 0 && e.continues(list[last]) {
		list[last].Length += e.Length
		return list
	}
	return append(list, e)
}

// Over overlays the upper of two ascending lists on the lower one. It returns the visible parts in as few extents
// as possible. It modifies lower.
func Over(lower, upper []Extent) []Extent {
	out := make([]Extent, 0, len(lower)+2*len(upper))
	for _, e := range upper {
		for len(lower) > 0 && lower[0].End() <= e.Offset {
			out, lower = Append(out, lower[0]), lower[1:]
		}
		if len(lower) > 0 && lower[0].Offset < e.Offset {
			out = Append(out, lower[0].Clip(0, e.Offset))
		}
		out = Append(out, e)
		for len(lower) > 0 && lower[0].End() <= e.End() {
			lower = lower[1:]
		}
		if len(lower) > 0 && lower[0].Offset < e.End() {
			lower[0] = lower[0].Clip(e.End(), lower[0].End())
		}
	}
	for _, e := range lower {
		out = Append(out, e)
	}
	return out
}

// From returns the rest of an ascending list: the extents that end after off.
func From(list []Extent, off int64) []Extent {
	return list[sort.Search(len(list), func(i int) bool { return list[i].End() > off }):]
}

// Within returns the parts of an ascending list between two offsets of the image.
func Within(list []Extent, from, to int64) iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		for _, e := range From(list, from) {
			if from >= to || e.Offset >= to || !yield(e.Clip(from, to)) {
				return
			}
		}
	}
}

// Filled is Within with zero extents in the gaps: it covers the whole range.
func Filled(list []Extent, from, to int64) iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		at := from
		for e := range Within(list, from, to) {
			if at < e.Offset && !yield(Extent{Offset: at, Length: e.Offset - at}) || !yield(e) {
				return
			}
			at = e.End()
		}
		if at < to {
			yield(Extent{Offset: at, Length: to - at})
		}
	}
}

// Check returns an error if a list is invalid for an image of size bytes. Extents must ascend, must not overlap
// or be empty, and must lie within the image.
func Check(list []Extent, size int64) error {
	end := int64(0)
	for i, e := range list {
		switch {
		case e.Length <= 0 || e.FileOffset < 0:
			return fmt.Errorf("extent %d: %d bytes at %d of its file", i, e.Length, e.FileOffset)
		case e.Offset < end:
			return fmt.Errorf("extent %d begins at %d, before the end of the one before it", i, e.Offset)
		case e.Length > size || e.Offset > size-e.Length: // written in a form that cannot overflow
			return fmt.Errorf("extent %d ends beyond the image's %d bytes", i, size)
		}
		end = e.End()
	}
	return nil
}
