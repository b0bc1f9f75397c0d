package layer

import (
	"context"
	"io"
	"slices"
	"sort"
)

// Bounds of what a diff stores beside what was written.
const (
	// zeroRun is the shortest stretch of zeros that gets a run of its own. A
	// shorter one is a hole in the content around it: it takes no room either, and
	// costs nobody a mapping.
	zeroRun = 16 * BlockSize
	// farGap is the largest gap between runs that is filled to make them one.
	farGap = 64 * BlockSize
	// fillPart: at most this part of what was written is filled in from below.
	fillPart = 16
)

// Diff writes the layer of what was written over an image: own runs, rising,
// whose content is in src at the offset that it has in the image, unless a run
// says that it is zero. Zeros are found. Runs that lie close together become one,
// with content from below between them, within a sixteenth of what was written; if
// there are more than max even so, the cheapest gaps are filled until there are
// not. below is nil for a base.
func (w *Writer) Diff(ctx context.Context, own []Run, src io.ReaderAt, below *Image, max int) error {
	d := differ{w: w, src: src, below: below}
	for _, r := range own {
		if err := d.take(ctx, r); err != nil {
			return w.fail(err)
		}
	}
	for _, r := range Join(d.join(d.visible()), min(max, MaxRuns)) {
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
	w     *Writer
	src   io.ReaderAt
	below *Image
	own   []Run // by their content, data and zeros apart
}

// take splits an own run into data and zeros.
func (d *differ) take(ctx context.Context, r Run) error {
	if r.Zero {
		d.add(r)
		return nil
	}
	return d.w.pieces(r.Length, d.src, r.Offset, func(done int64, p []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for len(p) > 0 {
			n, zero := stretch(p)
			d.add(Run{Offset: r.Offset + done, Length: int64(n), Zero: zero})
			done, p = done+int64(n), p[n:]
		}
		return nil
	})
}

func (d *differ) add(r Run) {
	r.FileOffset = 0
	if last := len(d.own) - 1; last >= 0 && d.own[last].touches(r) {
		d.own[last].Length += r.Length
		return
	}
	d.own = append(d.own, r)
}

// visible are the runs that the layer needs: no zeros over nothing, and short
// zeros as part of the data.
func (d *differ) visible() []Run {
	var out []Run
	for _, r := range d.own {
		switch {
		case r.Zero && !d.below.has(r.Offset, r.Length):
			continue
		case r.Length < zeroRun:
			r.Zero = false
		}
		out = append(out, r)
	}
	return coalesce(out)
}

// join fills the cheapest gaps between neighbouring data runs.
func (d *differ) join(runs []Run) []Run {
	type gap struct {
		before int // the run behind the gap
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

// write stores one data run: what is own, and between it what is below.
func (d *differ) write(r Run) error {
	if err := d.w.add(r.Offset, r.Length, false); err != nil {
		return err
	}
	at := r.Offset
	first := sort.Search(len(d.own), func(i int) bool { return d.own[i].end() > at })
	for _, o := range d.own[first:] {
		if o.Offset >= r.end() {
			break
		}
		if err := d.fill(at, o.Offset-at); err != nil {
			return err
		}
		from, to := max(o.Offset, at), min(o.end(), r.end())
		if err := d.content(o, from, to-from); err != nil {
			return err
		}
		at = to
	}
	return d.fill(at, r.end()-at)
}

func (d *differ) content(o Run, at, n int64) error {
	if o.Zero {
		return d.w.hole(n)
	}
	return d.w.pieces(n, d.src, at, func(_ int64, p []byte) error { return d.w.appendSparse(p) })
}

// fill stores what is seen below.
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
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].end() > off })
	return i < len(m.segments) && m.segments[i].Offset < off+n
}

// stored is how many bytes of a short range are in files: all that a layer covers
// but for what is sure to be a hole.
func (m *Image) stored(off, n int64) (total int64) {
	if m == nil {
		return 0
	}
	end := off + n
	first := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].end() > off })
	for _, s := range m.segments[first:] {
		if s.Offset >= end {
			break
		}
		s = s.cut(max(s.Offset, off), min(s.end(), end))
		if !isHole(m.chain[s.Layer].file, s.FileOffset, s.Length) {
			total += s.Length
		}
	}
	return total
}
