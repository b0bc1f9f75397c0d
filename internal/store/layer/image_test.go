package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

// Compares random chains with a model of blocks: the content, that the number of extents is minimal, and that any
// range can be compacted.
func TestRandomChains(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			chain, model := randomChain(t, r, 1+r.IntN(6), 200)
			checkImage(t, chain, model)
			from := r.IntN(len(chain))
			to := from + 1 + r.IntN(len(chain)-from)
			s, err := CompactSpec(NewID(), chain, from, to)
			must(t, err)
			w := newWriter(t, s, Options{})
			must(t, Compact(t.Context(), w, chain, from, to, 0, nil))
			l := finish(t, w)
			if want := CompactBytes(chain, from, to, 0); l.DataBytes != want {
				t.Errorf("the compacted layer holds %d bytes, %d were foretold", l.DataBytes, want)
			}
			checkImage(t, slices.Concat(chain[:from], []*Layer{l}, chain[to:]), model)
		})
	}
}

func randomChain(t *testing.T, r *rand.Rand, depth int, blocks int64) ([]*Layer, []byte) {
	model := make([]byte, blocks*BlockSize)
	var chain []*Layer
	parent := ID{}
	for range depth {
		l := randomLayer(t, r, spec(NewID(), parent, blocks), model)
		chain, parent = append(chain, l), l.View
	}
	return chain, model
}

func checkImage(t *testing.T, chain []*Layer, model []byte) {
	t.Helper()
	m, err := Assemble(chain)
	must(t, err)
	got := make([]byte, len(model))
	if n, err := m.ReadAt(got, 0); n != len(got) || err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	if !bytes.Equal(got, model) {
		t.Fatal("the image is another than the model")
	}
	var prev extent.Extent
	seen := make([]byte, len(model)) // as mapped by a VM
	for i, e := range m.Extents() {
		if e.Offset < prev.End() || e.Length <= 0 || (e.Offset|e.Length|e.FileOffset)%BlockSize != 0 {
			t.Fatalf("extent %+v behind %+v", e, prev)
		}
		if i > 0 && e.Offset == prev.End() && e.File == prev.File && e.FileOffset == prev.FileOffset+prev.Length {
			t.Fatalf("extent %+v goes on where %+v ends", e, prev)
		}
		_, err := e.File.ReadAt(seen[e.Offset:e.End()], e.FileOffset)
		must(t, err)
		prev = e
	}
	if !bytes.Equal(seen, model) {
		t.Fatal("the extents show another image than the model")
	}
}

func TestReadAtTakesAnyRange(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	chain, model := randomChain(t, r, 4, 64)
	m, err := Assemble(chain)
	must(t, err)
	whole := bytes.NewReader(model)
	for range 500 {
		off, n := r.Int64N(m.Size()+5000), r.IntN(20000)
		got, want := make([]byte, n), make([]byte, n)
		gn, gerr := m.ReadAt(got, off)
		wn, werr := whole.ReadAt(want, off)
		if n == 0 {
			continue // may or may not return EOF
		}
		if gn != wn || gerr != werr || !bytes.Equal(got[:gn], want[:wn]) {
			t.Fatalf("%d bytes at %d: %d, %v; want %d, %v", n, off, gn, gerr, wn, werr)
		}
	}
	if _, err := m.ReadAt(make([]byte, 1), -1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("before the beginning: %v", err)
	}
	must(t, chain[0].File().Truncate(0))
	must(t, chain[3].File().Truncate(0))
	if _, err := m.ReadAt(make([]byte, m.Size()), 0); !errors.Is(err, ErrDamaged) {
		t.Errorf("of a file that was cut: %v", err)
	}
}

func TestLayersThatAreNoChain(t *testing.T) {
	empty := func(s Spec) *Layer { l := finish(t, newWriter(t, s, Options{})); return l }
	base, diff := empty(spec(named(1), ID{}, 4)), empty(spec(named(2), named(1), 4))
	disk := spec(named(3), named(1), 4)
	disk.Kind = Disk
	for name, chain := range map[string][]*Layer{
		"none":             {},
		"without a base":   {diff},
		"two bases":        {base, empty(spec(named(4), ID{}, 4))},
		"the wrong order":  {diff, base},
		"a layer twice":    {base, diff, diff},
		"another size":     {base, empty(spec(named(5), named(1), 5))},
		"another kind":     {base, empty(disk)},
		"one left out":     {base, empty(spec(named(6), named(2), 4))},
		"over a wrong one": {base, empty(spec(named(7), named(8), 4))},
	} {
		if _, err := Assemble(chain); !errors.Is(err, ErrChain) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := CompactSpec(named(9), chain, 0, len(chain)); !errors.Is(err, ErrChain) {
			t.Errorf("compact %s: got %v", name, err)
		}
	}
	for _, r := range [][2]int{{-1, 1}, {0, 0}, {1, 1}, {0, 3}, {2, 1}} {
		if _, err := CompactSpec(named(9), []*Layer{base, diff}, r[0], r[1]); err == nil {
			t.Errorf("layers %v of a chain of two were taken", r)
		}
	}
	m, err := Assemble([]*Layer{base, diff})
	if err != nil || m.View() != diff.ID || m.Kind() != Memory || len(m.Extents()) != 0 || len(m.Layers()) != 2 {
		t.Errorf("a chain of empty layers: %+v, %v", m, err)
	}
}

// Merging two layers with almost the maximum number of runs gives too many runs, unless gaps are filled.
func TestCompactingJoinsRunsThatAreTooMany(t *testing.T) {
	const blocks = 8 * MaxRuns
	base := newWriter(t, spec(named(1), ID{}, blocks), Options{})
	for i := range int64(200) {
		must(t, base.Data(16*i*BlockSize, bytes.Repeat(block(byte(i+1)), 12)))
	}
	lower := finish(t, base)
	chain := []*Layer{lower}
	for i, runs := range []int64{MaxRuns - 500, 600} {
		w := newWriter(t, spec(named(byte(i+2)), chain[i].View, blocks), Options{})
		for j := range runs {
			if j%50 == 0 {
				must(t, w.Data((8*j+int64(2*i))*BlockSize, block(5)))
			} else {
				must(t, w.Zero((8*j+int64(2*i))*BlockSize, BlockSize))
			}
		}
		l := finish(t, w)
		chain = append(chain, l)
	}
	m, err := Assemble(chain)
	must(t, err)
	want := make([]byte, m.Size())
	_, err = m.ReadAt(want, 0)
	must(t, err)
	s, err := CompactSpec(named(9), chain, 1, 3)
	must(t, err)
	w := newWriter(t, s, Options{})
	var reached, all int64
	must(t, Compact(t.Context(), w, chain, 1, 3, 0, func(done, total int64) {
		if done <= reached {
			t.Errorf("%d bytes are done after %d", done, reached)
		}
		reached, all = done, total
	}))
	if want := CompactBytes(chain, 1, 3, 0); reached != want || all != want {
		t.Errorf("the progress ends with %d of %d bytes, want %d", reached, all, want)
	}
	l := finish(t, w)
	if l.RunCount > MaxRuns {
		t.Errorf("%d runs", l.RunCount)
	}
	after, err := Assemble([]*Layer{lower, l})
	must(t, err)
	got := make([]byte, m.Size())
	_, err = after.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("the compacted layer shows another image")
	}
}

func TestCompactingEndsWithItsContext(t *testing.T) {
	chain, _ := randomChain(t, rand.New(rand.NewPCG(1, 2)), 3, 64)
	s, err := CompactSpec(named(9), chain, 0, 3)
	must(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if err := Compact(ctx, newWriter(t, s, Options{}), chain, 0, 3, 0, nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestJoinFillsTheCheapestGaps(t *testing.T) {
	const b = BlockSize
	at := func(first, n int64, zero bool) run { return run{Offset: first * b, Length: n * b, Zero: zero} }
	in := []run{at(0, 1, false), at(3, 1, false), at(4, 2, false), at(7, 1, false), at(20, 9, true), at(30, 1, false)}
	for max, want := range map[int][]run{
		9: {at(0, 1, false), at(3, 3, false), at(7, 1, false), at(20, 9, true), at(30, 1, false)},
		4: {at(0, 1, false), at(3, 5, false), at(20, 9, true), at(30, 1, false)},
		3: {at(0, 8, false), at(20, 9, true), at(30, 1, false)},
		2: {at(0, 8, false), at(20, 11, false)},
		1: {at(0, 31, false)},
	} {
		if got := join(slices.Clone(in), max); !slices.Equal(got, want) {
			t.Errorf("at most %d: %v, want %v", max, got, want)
		}
	}
}

// The cost for a fork if its caller did not keep the image: five layers of 4000 scattered runs each.
func BenchmarkAssemble(b *testing.B) {
	var chain []*Layer
	for i := range 5 {
		s := spec(named(byte(i+1)), named(byte(i)), 1<<17)
		l := &Layer{Info: Info{Spec: s}, file: new(os.File)}
		l.View = l.ID
		for j := range int64(4000) {
			l.runs = append(l.runs, run{Offset: (31*j + int64(i)) * BlockSize, Length: 5 * BlockSize, FileOffset: headerSize + 5*j*BlockSize})
		}
		chain = append(chain, l)
	}
	for b.Loop() {
		m, err := Assemble(chain)
		if err != nil || len(m.Extents()) != 20000 {
			b.Fatalf("%d extents: %v", len(m.Extents()), err)
		}
	}
}
