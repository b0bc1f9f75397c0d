package layer

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/extent"
)

func TestRunsBecomeTheFewestThatSayTheSame(t *testing.T) {
	write := func(parent ID) []run {
		w := newWriter(t, spec(named(1), parent, 16), Options{})
		must(t, w.Zero(0, BlockSize))
		must(t, w.Data(BlockSize, slices.Concat(block(0), block(7), block(8), block(0))))
		must(t, w.Zero(5*BlockSize, BlockSize))
		must(t, w.Data(6*BlockSize, block(9)))
		must(t, w.Data(7*BlockSize, block(9)))
		must(t, w.Data(9*BlockSize, block(9)))
		l := finish(t, w)
		return l.runs
	}
	const b = BlockSize
	data := []run{{2 * b, 2 * b, 1 * b, false}, {6 * b, 2 * b, 3 * b, false}, {9 * b, b, 5 * b, false}}
	if got := write(ID{}); !slices.Equal(got, data) {
		t.Errorf("a base has the runs %v, want %v", got, data)
	}
	diff := []run{{0, 2 * b, 0, true}, data[0], {4 * b, 2 * b, 0, true}, data[1], data[2]}
	if got := write(named(9)); !slices.Equal(got, diff) {
		t.Errorf("a diff has the runs %v, want %v", got, diff)
	}
}

// fromFile stores the first n bytes of a file, like a compaction.
func fromFile(w *Writer, off, n int64, f *os.File) error {
	return w.do(off, n, func() error {
		if err := w.add(off, n, false); err != nil {
			return err
		}
		return w.appendFile(f, 0, n)
	})
}

func TestWhatCannotBeInALayerIsRefused(t *testing.T) {
	const b = BlockSize
	for name, add := range map[string]func(w *Writer) error{
		"nothing":               func(w *Writer) error { return w.Data(4*b, nil) },
		"part of a block":       func(w *Writer) error { return w.Data(4*b, make([]byte, 100)) },
		"within a block":        func(w *Writer) error { return w.Data(4*b+1, block(1)) },
		"behind the image":      func(w *Writer) error { return w.Zero(16*b, b) },
		"across its end":        func(w *Writer) error { return w.Data(15*b, make([]byte, 2*b)) },
		"before the last run":   func(w *Writer) error { return w.Zero(b, b) },
		"negative":              func(w *Writer) error { return w.Zero(4*b, -b) },
		"as long as can be":     func(w *Writer) error { return w.Zero(4*b, 1<<62) },
		"from a file too short": func(w *Writer) error { return fromFile(w, 4*b, b, newFile(t)) },
		"written to a file too short": func(w *Writer) error {
			return w.Diff(t.Context(), []extent.Extent{{File: newFile(t), Offset: 4 * b, Length: b}}, nil, MaxRuns)
		},
	} {
		w := newWriter(t, spec(named(1), named(9), 16), Options{})
		must(t, w.Data(2*b, block(1)))
		err := add(w)
		if err == nil {
			t.Errorf("%s: was added", name)
		}
		if again := w.Data(8*b, block(1)); again != err {
			t.Errorf("%s: the next call says %v, want %v", name, again, err)
		}
		if _, end := w.Finish(); end != err {
			t.Errorf("%s: Finish says %v, want %v", name, end, err)
		}
	}
}

func TestSpecsThatAreNone(t *testing.T) {
	good := spec(named(1), named(2), 4)
	for name, change := range map[string]func(*Spec){
		"no ID":          func(s *Spec) { s.ID = ID{} },
		"own parent":     func(s *Spec) { s.Parent = s.ID },
		"parent is view": func(s *Spec) { s.View = s.Parent },
		"no kind":        func(s *Spec) { s.Kind = 0 },
		"empty":          func(s *Spec) { s.Size = 0 },
		"half a block":   func(s *Spec) { s.Size = 100 },
		"too large":      func(s *Spec) { s.Size = MaxSize + BlockSize },
	} {
		s := good
		change(&s)
		if _, err := NewWriter(newFile(t), s, Options{}); err == nil {
			t.Errorf("%s: %+v was taken", name, s)
		}
	}
	f := newFile(t)
	_, err := f.WriteString("old")
	must(t, err)
	if _, err := NewWriter(f, good, Options{}); err == nil {
		t.Error("a file with something in it was taken")
	}
}

func TestAScatteredLayerIsRefusedAndAJoinedOneIsNot(t *testing.T) {
	w := newWriter(t, spec(named(1), named(9), 4*MaxRuns), Options{})
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		err = w.Zero(2*n*BlockSize, BlockSize)
	}
	if !errors.Is(err, ErrTooManyRuns) || n != MaxRuns+1 {
		t.Errorf("run %d: %v", n, err)
	}
	// Half as many stretches fit, regardless of the zeros in them.
	w = newWriter(t, spec(named(1), named(9), 4*MaxRuns), Options{})
	p := slices.Concat(block(1), block(0), block(1), block(0), block(1), block(0))
	for i := range int64(MaxRuns / 2) {
		must(t, w.Data(8*i*BlockSize, p))
	}
	l := finish(t, w)
	m := &Image{chain: []*Layer{l}, extents: slices.DeleteFunc(flatten([]*Layer{l}), extent.Extent.Zero)}
	got := make([]byte, len(p))
	for _, i := range []int64{0, MaxRuns / 4, MaxRuns/2 - 1} {
		if _, err := m.ReadAt(got, 8*i*BlockSize); err != nil || !bytes.Equal(got, p) {
			t.Errorf("stretch %d: %v", i, err)
		}
	}
}

func TestLargeContentGoesThroughUnchanged(t *testing.T) {
	p := make([]byte, 20<<20)
	for i := range p {
		p[i] = byte(i>>12) | 1
	}
	src := newFile(t)
	_, err := src.Write(p)
	must(t, err)
	w := newWriter(t, spec(named(1), ID{}, 2*20<<20/BlockSize), Options{})
	must(t, w.Data(0, p[:BlockSize]))
	must(t, w.Data(BlockSize, p[BlockSize:]))
	must(t, fromFile(w, 20<<20, 20<<20, src))
	l := finish(t, w)
	m, err := Assemble([]*Layer{l})
	must(t, err)
	got := make([]byte, len(p))
	for i := range int64(2) {
		if _, err := m.ReadAt(got, i*20<<20); err != nil || !bytes.Equal(got, p) {
			t.Errorf("part %d is another: %v", i, err)
		}
	}
	if len(m.Extents()) != 1 {
		t.Errorf("extents %v, want one", m.Extents())
	}
}

func TestAFullDiskHasItsOwnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	must(t, err)
	defer full.Close()
	src := newFile(t)
	_, err = src.Write(bytes.Repeat(block(1), 128))
	must(t, err)
	for name, write := range map[string]func(w *Writer) error{
		"data":   func(w *Writer) error { return w.Data(0, bytes.Repeat(block(1), 128)) },
		"a file": func(w *Writer) error { return fromFile(w, 0, 128*BlockSize, src) },
		"finish": func(w *Writer) error { must(t, w.Data(0, block(1))); _, err := w.Finish(); return err },
	} {
		w, err := NewWriter(full, spec(named(1), ID{}, 128), Options{})
		must(t, err)
		if err := write(w); !errors.Is(err, storeerr.ErrNoSpace) {
			t.Errorf("%s: got %v, want no space", name, err)
		}
	}
}

func TestEachStepCanBeRefused(t *testing.T) {
	var all []Step
	run := func(stop int) error {
		n := 0
		w := newWriter(t, spec(named(1), ID{}, 1024), Options{Before: func(s Step, bytes int64) error {
			if n++; n == stop {
				return storeerr.ErrNoSpace
			}
			if stop == 0 {
				all = append(all, s)
			}
			return nil
		}})
		src := newFile(t)
		_, err := src.Write(bytes.Repeat(block(1), 128))
		must(t, err)
		err = w.Data(0, bytes.Repeat(block(1), 128))
		if err == nil {
			err = fromFile(w, 128*BlockSize, 128*BlockSize, src)
		}
		if err == nil {
			err = w.Data(300*BlockSize, block(1))
		}
		if err == nil {
			_, err = w.Finish()
		}
		return err
	}
	must(t, run(0))
	if want := []Step{StepData, StepData, StepData, StepIndex, StepHeader, StepSync}; !slices.Equal(all, want) {
		t.Fatalf("steps %v, want %v", all, want)
	}
	for i := range all {
		if err := run(i + 1); !errors.Is(err, storeerr.ErrNoSpace) {
			t.Errorf("step %d (%s): %v", i, all[i], err)
		}
	}
}

func TestIDsHaveOneSpelling(t *testing.T) {
	id := NewID()
	if got, err := ParseID(id.String()); err != nil || got != id {
		t.Errorf("%s: %v", id, err)
	}
	for _, s := range []string{"", "..", strings.ToUpper(named(0xab).String()), strings.Repeat("0", 32), id.String() + "0", strings.Repeat("g", 32)} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q is an ID", s)
		}
	}
}
