package workingset

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

const pages = 4096 // pages of the memory in these tests: 16 MiB

func read(first, n int64) Run { return Run{Run: extent.Run{Offset: first * 4096, Length: n * 4096}} }
func written(first, n int64) Run {
	return Run{Run: extent.Run{Offset: first * 4096, Length: n * 4096}, Written: true}
}

func setOf(t *testing.T, runs ...Run) Set {
	t.Helper()
	var w Writer
	for _, r := range runs {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Read(bytes.NewReader(w.Bytes(pages*4096)), pages*4096)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadOnlyIsWhatIsReadInTheFullestBlocks(t *testing.T) {
	// Of the blocks of 512 pages the first has 13 read-only pages, the second 11, the third 14 and
	// the fourth 1.
	s := setOf(t, read(0, 3), written(100, 300), read(502, 20), read(600, 1), written(601, 1), read(1024, 14), read(1536, 1))
	for blocks, want := range [][]Run{
		nil,
		{read(1024, 14)},
		{read(0, 3), read(502, 10), read(1024, 14)},
		{read(0, 3), read(502, 20), read(600, 1), read(1024, 14)},
		{read(0, 3), read(502, 20), read(600, 1), read(1024, 14), read(1536, 1)},
		{read(0, 3), read(502, 20), read(600, 1), read(1024, 14), read(1536, 1)},
	} {
		if got := slices.Collect(s.ReadOnly(blocks).Runs()); !slices.Equal(got, want) {
			t.Errorf("%d blocks: got %+v, want %+v", blocks, got, want)
		}
	}
}

func TestWithoutIsTheRest(t *testing.T) {
	s := setOf(t, read(10, 10), written(20, 10), read(40, 1))
	for name, c := range map[string]struct {
		other, want []Run
	}{
		"nothing":             {nil, []Run{read(10, 10), written(20, 10), read(40, 1)}},
		"what is elsewhere":   {[]Run{read(0, 10), read(30, 10), read(41, 5)}, []Run{read(10, 10), written(20, 10), read(40, 1)}},
		"all of it":           {[]Run{written(0, 100)}, nil},
		"the beginning":       {[]Run{read(0, 12)}, []Run{read(12, 8), written(20, 10), read(40, 1)}},
		"the end":             {[]Run{written(25, 20)}, []Run{read(10, 10), written(20, 5)}},
		"the middle":          {[]Run{read(12, 2), written(15, 7)}, []Run{read(10, 2), read(14, 1), written(22, 8), read(40, 1)}},
		"what it writes, too": {[]Run{written(10, 10)}, []Run{written(20, 10), read(40, 1)}},
		"what it only reads":  {[]Run{read(15, 10), read(26, 2), written(28, 1)}, []Run{read(10, 5), written(20, 8), written(29, 1), read(40, 1)}},
		"exactly one of its":  {[]Run{written(20, 10)}, []Run{read(10, 10), read(40, 1)}},
	} {
		if got := slices.Collect(s.Without(setOf(t, c.other...)).Runs()); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// TestChoicesArePagesOfTheSet compares both functions with a page-by-page calculation, for random
// sets.
func TestChoicesArePagesOfTheSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	byChance := func() (Set, [pages]byte) {
		var of [pages]byte
		var runs []Run
		for at := rng.Int64N(40); at < pages; {
			r := Run{Run: extent.Run{Offset: at * 4096, Length: min(1+rng.Int64N(700), pages-at) * 4096}, Written: rng.IntN(2) == 0}
			runs = append(runs, r)
			for p := at; p < r.End()/4096; p++ {
				of[p] = 1
				if r.Written {
					of[p] = 2
				}
			}
			at = r.End()/4096 + rng.Int64N(3)*rng.Int64N(200)
		}
		return setOf(t, runs...), of
	}
	flat := func(s Set) (of [pages]byte) {
		for r := range s.Runs() {
			for p := r.Offset / 4096; p < r.End()/4096; p++ {
				of[p] = 1
				if r.Written {
					of[p] = 2
				}
			}
		}
		return of
	}
	for range 200 {
		a, as := byChance()
		b, bs := byChance()
		less, all, some := flat(a.Without(b)), flat(a.ReadOnly(pages)), flat(a.ReadOnly(3))
		blocks := map[int]bool{}
		for p := range as {
			want := as[p]
			if bs[p] >= as[p] { // mapped as required, or better
				want = 0
			}
			if less[p] != want {
				t.Fatalf("page %d of %d without %d: %d", p, as[p], bs[p], less[p])
			}
			if want := as[p] & 1; all[p] != want {
				t.Fatalf("page %d of %d: %d, of those that are read", p, as[p], all[p])
			}
			if some[p] != 0 {
				blocks[p/512] = true
			}
			if some[p] != 0 && some[p] != all[p] {
				t.Fatalf("page %d is chosen as %d, and is %d", p, some[p], all[p])
			}
		}
		if len(blocks) > 3 {
			t.Fatalf("%d blocks were chosen, want at most 3", len(blocks))
		}
	}
}
