package layer

import (
	"context"
	"fmt"

	"github.com/forkd/forkd/internal/store/extent"
)

// CompactSpec returns the spec of a layer that can replace chain[from:to].
func CompactSpec(id ID, chain []*Layer, from, to int) (Spec, error) {
	if err := checkChain(chain); err != nil {
		return Spec{}, fmt.Errorf("compact: %w", err)
	}
	if from < 0 || to > len(chain) || from >= to {
		return Spec{}, fmt.Errorf("compact layers %d to %d of a chain of %d: no such range", from, to, len(chain))
	}
	top := chain[to-1]
	return Spec{ID: id, Parent: chain[from].Parent, View: top.View, Kind: top.Kind, Size: top.Size}, nil
}

// CompactBytes returns the size of the content that Compact will store, including holes.
func CompactBytes(chain []*Layer, from, to, runs int) int64 {
	return content(plan(chain, from, to, runs))
}

func content(runs []run) (n int64) {
	for _, r := range runs {
		if !r.Zero {
			n += r.Length
		}
	}
	return n
}

// Compact writes chain[from:to] into a layer begun with CompactSpec. If it replaces them, all layers above it
// still show the same image. The chain below from is needed to fill gaps with content, so that the layer has at
// most runs data and zero runs (MaxRuns if runs is 0). Holes of the layers' files stay holes. progress reports
// bytes of content, including holes; it may be nil.
func Compact(ctx context.Context, w *Writer, chain []*Layer, from, to, runs int,
	progress func(done, total int64)) error {
	whole, err := Assemble(chain[:to])
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	planned := plan(chain, from, to, runs)
	m := meter{total: content(planned), tell: progress}
	for _, r := range planned {
		if r.Zero {
			err = w.Zero(r.Offset, r.Length)
		} else {
			err = w.do(r.Offset, r.Length, func() error { return w.compactRun(ctx, whole, r, &m) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// meter sums up the progress toward a total.
type meter struct {
	done, total int64
	tell        func(done, total int64) // may be nil
}

func (m *meter) add(n int64) {
	if m.done += n; n > 0 && m.tell != nil {
		m.tell(m.done, m.total)
	}
}

// plan returns the runs of the new layer.
func plan(chain []*Layer, from, to, most int) []run {
	if most <= 0 || most > MaxRuns {
		most = MaxRuns
	}
	base := chain[from].Parent.IsZero()
	var runs []run
	for _, e := range flatten(chain[from:to]) {
		if !e.Zero() || !base {
			runs = append(runs, run{Offset: e.Offset, Length: e.Length, Zero: e.Zero()})
		}
	}
	return join(runs, most)
}

// compactRun stores one run, with the content of the whole chain.
func (w *Writer) compactRun(ctx context.Context, whole *Image, r run, m *meter) error {
	if err := w.add(r.Offset, r.Length, false); err != nil {
		return err
	}
	for e := range extent.Filled(whole.extents, r.Offset, r.end()) {
		if err := w.appendExtent(ctx, e, m); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) appendExtent(ctx context.Context, e extent.Extent, m *meter) error {
	if e.Zero() {
		m.add(e.Length)
		return w.hole(e.Length)
	}
	for done := int64(0); done < e.Length; done += pieceBytes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(e.Length-done, pieceBytes)
		if err := w.appendRange(e.File, e.FileOffset+done, n); err != nil {
			return err
		}
		m.add(n)
	}
	return nil
}
