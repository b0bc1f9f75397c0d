package vmmctl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manySegments are more than a message holds.
func manySegments(files []*os.File, n int) []Segment {
	out := []Segment{{Length: 1 << 40}} // zero pages
	for i := range n - 1 {
		out = append(out, Segment{File: files[i%len(files)], FileOffset: int64(i) << 12, Offset: int64(2*i) << 12, Length: 4096})
	}
	return out
}

func TestATableOfAnySizeArrives(t *testing.T) {
	files := []*os.File{file(t, "a"), file(t, "b")}
	for _, n := range []int{1, 2, maxInline / segmentSize, maxInline/segmentSize + 1, 20000} {
		list, under := specs(manySegments(files, n))
		var ref tableRef
		sent, done, err := ref.pack(under, list[:n/2], list[n/2:])
		if err != nil {
			t.Fatal(err)
		}
		if ref.TableFile != (n*segmentSize > maxInline) {
			t.Errorf("%d segments: in a file: %v", n, ref.TableFile)
		}
		got, rest, err := ref.open(sent)
		if err != nil || !slices.Equal(rest, under) {
			t.Fatalf("%d segments: %v, %d files are left of %d", n, err, len(rest), len(under))
		}
		back, err := got.next(n)
		if err != nil || !slices.Equal(back, list) {
			t.Errorf("%d segments: others arrived, %v", n, err)
		}
		if _, err := got.next(1); err == nil {
			t.Error("there is one more than was sent")
		}
		done()
	}
}

// A VMM takes a table from a file only if nobody can change it under its hands.
func TestATableMustBeSealed(t *testing.T) {
	ref := tableRef{TableFile: true}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ref.open([]*os.File{plain}); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("got %v", err)
	}
	if _, _, err := ref.open(nil); err == nil {
		t.Error("a table without its file was read")
	}
	if _, _, err := (&tableRef{Table: make([]byte, segmentSize+1)}).open(nil); err == nil {
		t.Error("half a segment was read")
	}
	if f, err := sealed(make([]byte, maxTable+1)); err == nil {
		f.Close()
		t.Error("an endless table was made")
	}
}

func TestRebaseAndALongChain(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	files := []*os.File{file(t, "a"), file(t, "b"), file(t, "c")}
	if _, err := p.Restore(t.Context(), RestoreConfig{State: file(t, "state"), Memory: manySegments(files, 5000), CID: 7}); err != nil {
		t.Fatal(err)
	}
	base := manySegments(files, 4000)[1:]
	err := p.Rebase(t.Context(), [][]Segment{base, base[:2], nil})
	if want := "3999 segments of 3 files, 2 segments of 2 files, 0 segments of 0 files"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func FuzzTable(f *testing.F) {
	f.Add(segmentSpec{File: -1, Length: 4096}.append(nil), 1)
	f.Add([]byte("short"), 2)
	f.Add(make([]byte, 2*segmentSize), -1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		got, _, err := (&tableRef{Table: b}).open(nil)
		if err != nil {
			return
		}
		list, err := got.next(n)
		if err != nil {
			return
		}
		var back []byte
		for _, s := range list {
			back = s.append(back)
		}
		if string(back) != string(b[:n*segmentSize]) {
			t.Errorf("%d segments are others when they are written again", n)
		}
	})
}
