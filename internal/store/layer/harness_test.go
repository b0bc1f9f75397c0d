package layer

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// named returns an ID that tests can recognize.
func named(b byte) ID { return ID{0: b, 15: b} }

// spec returns the spec of a small memory image.
func spec(id, parent ID, blocks int64) Spec {
	return Spec{ID: id, Parent: parent, Kind: Memory, Size: blocks * BlockSize}
}

// block returns a block filled with one byte.
func block(b byte) []byte { return bytes.Repeat([]byte{b}, BlockSize) }

func newFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "layer"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func newWriter(t testing.TB, s Spec, opt Options) *Writer {
	t.Helper()
	w, err := NewWriter(newFile(t), s, opt)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// finish finishes the layer and opens it.
func finish(t testing.TB, w *Writer) *Layer {
	t.Helper()
	info, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(w.dst)
	if err != nil {
		t.Fatal(err)
	}
	if l.Info != info {
		t.Fatalf("opened %+v, finished %+v", l.Info, info)
	}
	return l
}

// digest returns a layer's digests.
func digest(t testing.TB, l *Layer) *Digests {
	t.Helper()
	d, err := l.Digest(t.Context(), nil)
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomLayer writes a layer of random runs, and the same data to the model.
func randomLayer(t testing.TB, r *rand.Rand, s Spec, model []byte) *Layer {
	t.Helper()
	w := newWriter(t, s, Options{})
	for at := int64(0); at < s.Size; {
		n := min(int64(1+r.IntN(6))*BlockSize, s.Size-at)
		p := model[at : at+n]
		switch r.IntN(4) {
		case 0, 1: // no run
		case 2:
			clear(p)
			must(t, w.Zero(at, n))
		case 3:
			fill(r, p)
			must(t, w.Data(at, p))
		}
		at += n
	}
	return finish(t, w)
}

// fill fills blocks with random bytes or zeros.
func fill(r *rand.Rand, p []byte) {
	for ; len(p) > 0; p = p[BlockSize:] {
		b := byte(r.IntN(3))
		copy(p, block(b))
		if b != 0 {
			p[r.IntN(BlockSize)] = byte(1 + r.IntN(255))
		}
	}
}
