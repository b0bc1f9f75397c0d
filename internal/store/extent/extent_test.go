package extent

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// Two files that are never read. Extents only compare them.
var fileA, fileB = new(os.File), new(os.File)

func TestClipMovesTheContentAlong(t *testing.T) {
	e := Extent{File: fileA, FileOffset: 1000, Offset: 100, Length: 50}
	for _, c := range []struct {
		name     string
		from, to int64
		want     Extent
	}{
		{"all of it", 0, 1000, e},
		{"its beginning", 0, 120, Extent{fileA, 1000, 100, 20}},
		{"its end", 130, 1000, Extent{fileA, 1030, 130, 20}},
		{"from within", 110, 115, Extent{fileA, 1010, 110, 5}},
	} {
		if got := e.Clip(c.from, c.to); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := e.Clip(200, 300); got.Length > 0 {
		t.Errorf("what lies behind it is %+v", got)
	}
	if got := (Extent{Offset: 100, Length: 50}).Clip(110, 120); got != (Extent{Offset: 110, Length: 10}) {
		t.Errorf("zeros have the content %+v", got)
	}
}

func TestAppendJoinsWhatContinues(t *testing.T) {
	last := Extent{fileA, 1000, 100, 50}
	for _, c := range []struct {
		name string
		next Extent
		want int
	}{
		{"goes on in image and file", Extent{fileA, 1050, 150, 10}, 1},
		{"a gap in the image", Extent{fileA, 1050, 160, 10}, 2},
		{"a gap in the file", Extent{fileA, 1060, 150, 10}, 2},
		{"another file", Extent{fileB, 1050, 150, 10}, 2},
		{"zeros", Extent{Offset: 150, Length: 10}, 2},
	} {
		if got := Append([]Extent{last}, c.next); len(got) != c.want {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	if got := Append([]Extent{{Length: 5}}, Extent{Offset: 5, Length: 5}); len(got) != 1 || got[0].Length != 10 {
		t.Errorf("zeros behind zeros: got %+v", got)
	}
}

const imageSize = 200

// cell is the state of one byte of an image: a gap, zero, or a byte of a file.
type cell struct {
	there bool
	file  *os.File
	at    int64
}

// cells returns an image's bytes one by one, painted in the order of the lists.
func cells(lists ...[]Extent) []cell {
	out := make([]cell, imageSize)
	for _, list := range lists {
		for _, e := range list {
			for i := range e.Length {
				out[e.Offset+i] = cell{there: true, file: e.File}
				if e.File != nil {
					out[e.Offset+i].at = e.FileOffset + i
				}
			}
		}
	}
	return out
}

func randomList(r *rand.Rand) (list []Extent) {
	for at := r.Int64N(20); at < imageSize; at += r.Int64N(15) {
		e := Extent{File: []*os.File{nil, fileA, fileB}[r.IntN(3)], Offset: at, Length: min(1+r.Int64N(20), imageSize-at)}
		if e.File != nil {
			e.FileOffset = r.Int64N(3) * 1000
		}
		list, at = append(list, e), e.End()
	}
	return list
}

func TestAgainstACellForEachByte(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		lower, upper := randomList(r), randomList(r)
		want := cells(lower, upper)
		seen := Over(slices.Clone(lower), upper)
		if err := Check(seen, imageSize); err != nil {
			t.Fatalf("over one another: %v", err)
		}
		if !slices.Equal(cells(seen), want) {
			t.Fatalf("%+v over %+v is %+v", upper, lower, seen)
		}
		for i := range seen[1:] {
			if seen[i+1].continues(seen[i]) {
				t.Fatalf("not as few as possible: %+v", seen)
			}
		}
		from := r.Int64N(imageSize)
		to := from + r.Int64N(imageSize-from)
		part := slices.Collect(Within(seen, from, to))
		for i, c := range cells(part) {
			if at := int64(i); c != want[i] && at >= from && at < to || c.there && (at < from || at >= to) {
				t.Fatalf("from %d to %d of %+v is %+v", from, to, seen, part)
			}
		}
		at := from
		for e := range Filled(seen, from, to) {
			if e.Offset != at || e.Length <= 0 {
				t.Fatalf("%+v comes after %d", e, at)
			}
			for i := range e.Length {
				if w := want[at+i]; w.file != e.File || w.file != nil && w.at != e.FileOffset+i {
					t.Fatalf("byte %d is in %+v, want %+v", at+i, e, w)
				}
			}
			at = e.End()
		}
		if at != to {
			t.Fatalf("from %d to %d, filled up to %d", from, to, at)
		}
	}
}

func TestAnIterationCanBeLeft(t *testing.T) {
	list := []Extent{{fileA, 0, 10, 10}, {fileA, 0, 30, 10}}
	for stop := range 5 {
		n := 0
		for range Filled(list, 0, 50) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Errorf("left after %d of 5 parts, want %d", n, stop+1)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	good := Extent{fileA, 0, 10, 10}
	for name, list := range map[string][]Extent{
		"an empty extent":        {{fileA, 0, 0, 0}},
		"a negative length":      {{fileA, 0, 0, -1}},
		"a negative file offset": {{fileA, -1, 0, 1}},
		"a negative offset":      {{fileA, 0, -1, 1}},
		"an overlap":             {good, {fileA, 0, 19, 2}},
		"a fall":                 {good, {fileA, 0, 0, 5}},
		"the end of the image":   {good, {fileA, 0, 99, 2}},
		"an overflow":            {{fileA, 0, 1<<63 - 1, 2}},
		"as long as can be":      {{fileA, 0, 10, 1<<63 - 1}},
	} {
		if Check(list, 100) == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := Check([]Extent{good, {Offset: 20, Length: 80}}, 100); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func TestRunsAgainstAListOfPages(t *testing.T) {
	const pages = 24
	rnd := rand.New(rand.NewPCG(3, 4))
	paint := func(runs []Run) (out [pages]bool) {
		for _, r := range runs {
			for p := r.Offset / PageSize; p < r.End()/PageSize; p++ {
				out[p] = true
			}
		}
		return out
	}
	for range 2000 {
		var some []Run
		for range rnd.IntN(5) {
			at := rnd.Int64N(pages)
			some = append(some, Run{at * PageSize, (1 + rnd.Int64N(pages-at)) * PageSize})
		}
		want := paint(some)
		got := Joined(slices.Clone(some))
		for i := 1; i < len(got); i++ {
			if got[i].Offset <= got[i-1].End() {
				t.Fatalf("%v joined are %v", some, got)
			}
		}
		if paint(got) != want {
			t.Fatalf("%v joined are %v", some, got)
		}
		n := rnd.Int64N(Bytes(got) + 2*PageSize)
		first, left := First(got, n), (n+PageSize-1)/PageSize
		wanted := paint(got)
		for p := range wanted {
			if wanted[p] && left <= 0 {
				wanted[p] = false
			} else if wanted[p] {
				left--
			}
		}
		if paint(first) != wanted || !slices.Equal(Joined(slices.Clone(first)), first) {
			t.Fatalf("the first %d bytes of %v are %v", n, got, first)
		}
	}
	if got := First([]Run{{0, PageSize}}, -5); len(got) != 0 {
		t.Errorf("of nothing there is %v", got)
	}
}
