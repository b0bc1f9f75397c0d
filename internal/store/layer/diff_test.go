package layer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

// placed returns a base with holes, whose image was written by the caller.
func placed(t testing.TB, s Spec, model []byte) *Layer {
	t.Helper()
	w := newWriter(t, s, Options{})
	for at := int64(0); at < s.Size; at += BlockSize {
		if p := model[at : at+BlockSize]; !bytes.Equal(p, zeroBlock) {
			_, err := w.dst.WriteAt(p, ContentOffset+at)
			must(t, err)
		}
	}
	must(t, w.Placed())
	l := finish(t, w)
	return l
}

// physical returns a file's size on disk, in bytes.
func physical(t testing.TB, f *os.File) int64 {
	t.Helper()
	st, err := f.Stat()
	must(t, err)
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

// randomDiff makes random writes over an image and to the model.
func randomDiff(t testing.TB, r *rand.Rand, below *Image, model []byte, most int) (l *Layer, written int64) {
	t.Helper()
	src, own := newFile(t), []extent.Extent(nil)
	for at := int64(r.IntN(9)) * BlockSize; at < int64(len(model)); {
		n := min(int64(1+r.IntN(30))*BlockSize, int64(len(model))-at)
		p := model[at : at+n]
		if r.IntN(4) == 0 {
			clear(p)
			own = append(own, extent.Extent{Offset: at, Length: n})
		} else {
			fill(r, p)
			_, err := src.WriteAt(p, at)
			must(t, err)
			own = append(own, extent.Extent{File: src, FileOffset: at, Offset: at, Length: n})
			written += n
		}
		at += n + int64(r.IntN(20))*BlockSize
	}
	w := newWriter(t, Spec{ID: NewID(), Parent: below.View(), Kind: Memory, Size: int64(len(model))}, Options{})
	must(t, w.Diff(t.Context(), own, below, most))
	return finish(t, w), written
}

// Random writes over random images: the image shows the written data, with few runs and little additional
// content.
func TestDiffAgainstAModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			const blocks = 600
			r := rand.New(rand.NewPCG(seed, 7))
			model := make([]byte, blocks*BlockSize)
			fill(r, model[100*BlockSize:300*BlockSize])
			chain := []*Layer{placed(t, spec(NewID(), ID{}, blocks), model)}
			checkImage(t, chain, model)
			for i := range 4 {
				below, err := Assemble(chain)
				must(t, err)
				most := MaxRuns
				if i == 2 {
					most = 3
				}
				l, written := randomDiff(t, r, below, model, most)
				chain = append(chain, l)
				checkImage(t, chain, model)
				if len(l.runs) > most {
					t.Errorf("%d runs, want at most %d", len(l.runs), most)
				}
				if got := physical(t, l.file); most == MaxRuns && got > written+written/10+3*BlockSize {
					t.Errorf("%d bytes were written, the layer takes %d", written, got)
				}
			}
			// Merge all diffs into one, with few runs.
			s, err := CompactSpec(NewID(), chain, 1, len(chain))
			must(t, err)
			w := newWriter(t, s, Options{})
			must(t, Compact(t.Context(), w, chain, 1, len(chain), 5, nil))
			l := finish(t, w)
			if len(l.runs) > 5 {
				t.Errorf("%d runs, want at most 5", len(l.runs))
			}
			checkImage(t, []*Layer{chain[0], l}, model)
		})
	}
}

// Zero pages without content below need no run.
func TestDiffLeavesOutWhatShowsNothing(t *testing.T) {
	base := newWriter(t, spec(named(1), ID{}, 100), Options{})
	must(t, base.Data(0, block(1)))
	l := finish(t, base)
	below, err := Assemble([]*Layer{l})
	must(t, err)
	src := newFile(t)
	_, err = src.WriteAt(block(5), 50*BlockSize)
	must(t, err)
	must(t, src.Truncate(100*BlockSize))
	w := newWriter(t, spec(named(2), named(1), 100), Options{})
	must(t, w.Diff(t.Context(), []extent.Extent{{File: src, FileOffset: 10 * BlockSize, Offset: 10 * BlockSize, Length: 90 * BlockSize}}, below, MaxRuns))
	diff := finish(t, w)
	if want := []run{{Offset: 50 * BlockSize, Length: BlockSize, FileOffset: ContentOffset}}; !slices.Equal(diff.runs, want) {
		t.Errorf("runs %v, want %v", diff.runs, want)
	}
}

// A base with large holes has cheap digests and copies: holes are neither read nor stored.
func TestHolesStayHoles(t *testing.T) {
	const blocks = 16 << 10 // 64 MiB
	w := newWriter(t, spec(named(1), ID{}, blocks), Options{})
	_, err := w.dst.WriteAt(block(9), ContentOffset+1000*BlockSize)
	must(t, err)
	must(t, w.Placed())
	l := finish(t, w)
	d, err := l.Digest(t.Context(), nil)
	must(t, err)
	var last, whole int64
	found, err := l.Verify(t.Context(), d, func(done, total int64) { last, whole = done, total })
	if err != nil || len(found) != 0 || last != whole {
		t.Errorf("verify: %v, %v, %d of %d", found, err, last, whole)
	}
	s, err := CompactSpec(named(2), []*Layer{l}, 0, 1)
	must(t, err)
	c := newWriter(t, s, Options{})
	must(t, Compact(t.Context(), c, []*Layer{l}, 0, 1, 0, nil))
	copied := finish(t, c)
	if !bytes.Equal(digest(t, copied).sums, d.sums) {
		t.Error("the copy has other digests")
	}
	for _, l := range []*Layer{l, copied} {
		if got := physical(t, l.file); got > 1<<20 {
			t.Errorf("it takes %d bytes", got)
		}
	}
	_, err = l.file.WriteAt([]byte{1}, ContentOffset+10000*BlockSize)
	must(t, err)
	if found, err := l.Verify(t.Context(), d, nil); err != nil || len(found) != 1 {
		t.Errorf("a hole that was written to: %v, %v", found, err)
	}
}

func TestPlacedIsForEmptyBasesOnly(t *testing.T) {
	full := newWriter(t, spec(named(1), ID{}, 10), Options{})
	must(t, full.Data(0, block(1)))
	for name, w := range map[string]*Writer{
		"a diff":                       newWriter(t, spec(named(1), named(2), 10), Options{}),
		"one that has something in it": full,
	} {
		if w.Placed() == nil {
			t.Errorf("%s: placed", name)
		}
	}
}

// Finds a sparse file's data, regardless of the file system's block size.
func TestDataOfASparseFile(t *testing.T) {
	const b = BlockSize
	f := newFile(t)
	must(t, f.Truncate(64*b))
	_, err := f.WriteAt([]byte("x"), 9*b+17)
	must(t, err)
	_, err = f.WriteAt(block(3), 40*b)
	must(t, err)
	data, err := DataOf(f, 64*b)
	must(t, err)
	covered := func(at int64) bool {
		return slices.ContainsFunc(data, func(e extent.Extent) bool { return e.Offset <= at && at < e.End() })
	}
	if !covered(9*b) || !covered(40*b) || covered(0) || covered(63*b) || slices.ContainsFunc(data, func(e extent.Extent) bool {
		return (e.Offset|e.Length)%b != 0 || e.File != f || e.FileOffset != e.Offset
	}) {
		t.Errorf("data %v, want that of blocks 9 and 40 only", data)
	}
	if data, err := DataOf(newFile(t), 8*b); err != nil || len(data) != 0 {
		t.Errorf("an empty file has %v, %v", data, err)
	}
}
