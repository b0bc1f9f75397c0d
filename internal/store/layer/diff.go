package layer

import (
	"context"
	"slices"

	"github.com/forkd/forkd/internal/store/extent"
)

// Limits of the content that a diff stores in addition to the written blocks.
const (
	// zeroRun is the shortest stretch of zeros with a separate run. A shorter one becomes a hole in the
	// surrounding content, which takes no space either and needs no mapping.
	zeroRun = 16 * BlockSize
	// farGap is the largest gap between runs that is filled to join them.
	farGap = 64 * BlockSize
	// fillPart limits the filled gaps to one part in fillPart of the written blocks.
	fillPart = 16
)

// Diff writes a layer of the blocks written over an image. The extents ascend and consist of whole blocks with
// content. Diff detects zeros. It joins runs that are close together by filling the gap with content from below,
// up to a sixteenth of the written size. If there are still more than max runs, it fills the cheapest gaps until
// there are not. below is nil for a base.
func (w *Writer) Diff(ctx context.Context, written []extent.Extent, below *Image, max int) error {
	d := differ{w: w, below: below}
	for _, e := range written {
		if err := d.take(ctx, e); err != nil {
			return w.fail(err)
		}
	}
	for _, r := range join(d.join(d.visible()), min(max, MaxRuns)) {
		if ctx.Err() != nil {
			return w.fail(context.Cause(ctx))
		}
		var err error
		if r.Zero {
			err = w.Zero(r.Offset, r.Length)
		} else {
			err = w.do(r.Offset, r.Length, func() error { return d.write(r) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type differ struct {
	w       *Writer
	below   *Image
	written []extent.Extent // data and zeros separately
}

// take splits an extent by its content into data and zeros.
func (d *differ) take(ctx context.Context, e extent.Extent) error {
	if e.Zero() {
		d.written = extent.Append(d.written, e)
		return nil
	}
	return d.w.pieces(e.Length, e.File, e.FileOffset, func(done int64, p []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for len(p) > 0 {
			n, zero := stretch(p)
			part := e.Clip(e.Offset+done, e.Offset+done+int64(n))
			if zero {
				part.File, part.FileOffset = nil, 0
			}
			d.written = extent.Append(d.written, part)
			done, p = done+int64(n), p[n:]
		}
		return nil
	})
}

// visible returns the runs that the layer needs. It drops zeros without content below, and treats short stretches
// of zeros as data.
func (d *differ) visible() []run {
	var out []run
	for _, e := range d.written {
		if e.Zero() && !d.below.has(e.Offset, e.Length) {
			continue
		}
		out = append(out, run{Offset: e.Offset, Length: e.Length, Zero: e.Zero() && e.Length >= zeroRun})
	}
	return coalesce(out)
}

// join fills the cheapest gaps between neighbouring data runs.
func (d *differ) join(runs []run) []run {
	type gap struct {
		before int // index of the run after the gap
		cost   int64
	}
	var gaps []gap
	var budget int64
	for i, r := range runs {
		if r.Zero {
			continue
		}
		budget += r.Length / fillPart
		if i == 0 || runs[i-1].Zero {
			continue
		}
		from := runs[i-1].end()
		if r.Offset-from > farGap {
			continue
		}
		gaps = append(gaps, gap{i, d.below.stored(from, r.Offset-from)})
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { return int(a.cost>>12) - int(b.cost>>12) })
	joined := make([]bool, len(runs))
	for _, g := range gaps {
		if budget -= g.cost; budget < 0 {
			break
		}
		joined[g.before] = true
	}
	out := runs[:0]
	for i, r := range runs {
		if joined[i] {
			out[len(out)-1].Length = r.end() - out[len(out)-1].Offset
			continue
		}
		out = append(out, r)
	}
	return out
}

// write stores one data run: the written blocks, with content from below in between.
func (d *differ) write(r run) error {
	if err := d.w.add(r.Offset, r.Length, false); err != nil {
		return err
	}
	at := r.Offset
	for e := range extent.Within(d.written, r.Offset, r.end()) {
		if err := d.fill(at, e.Offset-at); err != nil {
			return err
		}
		if err := d.content(e); err != nil {
			return err
		}
		at = e.End()
	}
	return d.fill(at, r.end()-at)
}

func (d *differ) content(e extent.Extent) error {
	if e.Zero() {
		return d.w.hole(e.Length)
	}
	return d.w.pieces(e.Length, e.File, e.FileOffset, func(_ int64, p []byte) error { return d.w.appendSparse(p) })
}

// fill stores the content from below.
func (d *differ) fill(at, n int64) error {
	if n <= 0 {
		return nil
	}
	if d.below == nil {
		return d.w.hole(n)
	}
	return d.w.pieces(n, d.below, at, func(_ int64, p []byte) error { return d.w.appendSparse(p) })
}

// has reports whether any layer has content in the range.
func (m *Image) has(off, n int64) bool {
	if m == nil {
		return false
	}
	seen := extent.From(m.extents, off)
	return len(seen) > 0 && seen[0].Offset < off+n
}

// stored returns the number of bytes of a short range that are stored in files: everything covered by a layer,
// except certain holes.
func (m *Image) stored(off, n int64) (total int64) {
	if m == nil {
		return 0
	}
	for e := range extent.Within(m.extents, off, off+n) {
		if !isHole(e.File, e.FileOffset, e.Length) {
			total += e.Length
		}
	}
	return total
}
