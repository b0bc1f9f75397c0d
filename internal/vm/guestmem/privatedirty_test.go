package guestmem

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

type run struct{ offset, length int64 }

func runs(t *testing.T, scan func(func(offset, length int64) error) error) []run {
	t.Helper()
	var out []run
	if err := scan(func(o, n int64) error { out = append(out, run{o / PageSize, n / PageSize}); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func mapped(t *testing.T, pages int) *Map {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(make([]byte, pages*PageSize)); err != nil {
		t.Fatal(err)
	}
	m, err := Reserve(int64(pages) * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	half := int64(pages/2) * PageSize
	if err := m.MapFile(0, half, int(f.Fd()), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.MapZero(half, m.Size()-half); err != nil {
		t.Fatal(err)
	}
	return m
}

func touchPages(m *Map, pages ...int) {
	for _, p := range pages {
		m.Linear()[p*PageSize]++
	}
}

// Pages that were only read are not private, neither a file's nor zero pages.
func TestPrivateDirtyPagesAreThoseThatWereWritten(t *testing.T) {
	m := mapped(t, 64)
	if got := runs(t, m.PrivateDirty); len(got) != 0 {
		t.Errorf("fresh memory has %v", got)
	}
	sum := byte(0)
	for i := range 64 {
		sum += m.Linear()[i*PageSize]
	}
	touchPages(m, 3, 4, 31, 32, 50)
	if got := runs(t, m.PrivateDirty); !slices.Equal(got, []run{{3, 2}, {31, 2}, {50, 1}}) && !slices.Equal(got, []run{{3, 2}, {31, 1}, {32, 1}, {50, 1}}) {
		t.Errorf("private dirty pages are %v", got)
	}
	if sum != 0 {
		t.Error("the file was not zero")
	}
}

func track(t *testing.T, m *Map) *Tracker {
	t.Helper()
	tr, err := m.Track()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err) // Linux before 6.7; the machine's kernel has it
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTrackerTellsWhatWasWrittenSince(t *testing.T) {
	m := mapped(t, 64)
	touchPages(m, 1, 2, 40)
	tr := track(t, m)
	if got := runs(t, tr.Written); !slices.Equal(got, []run{{1, 2}, {40, 1}}) {
		t.Errorf("before it was armed: %v", got)
	}
	if got := arm(t, tr, run{1, 2}, run{40, 1}); !slices.Equal(got, []run{{1, 2}, {40, 1}}) {
		t.Errorf("armed were %v", got)
	}
	if got := runs(t, tr.Written); len(got) != 0 {
		t.Errorf("just armed: %v", got)
	}
	_ = m.Linear()[2*PageSize] // a read is not a write
	touchPages(m, 2, 9, 60)    // armed, a file's, of zeros
	if got := runs(t, tr.Written); !slices.Equal(got, []run{{2, 1}, {9, 1}, {60, 1}}) {
		t.Errorf("after writes: %v", got)
	}
	arm(t, tr, run{2, 1})
	if got := runs(t, tr.Written); !slices.Equal(got, []run{{9, 1}, {60, 1}}) {
		t.Errorf("after one was armed again: %v", got)
	}
	touchPages(m, 7) // between two pages that are armed with one call: it is copied with them
	if got := arm(t, tr, run{2, 1}, run{9, 1}); !slices.Equal(got, []run{{2, 1}, {7, 1}, {9, 1}}) {
		t.Errorf("armed were %v", got)
	}
	if got := runs(t, tr.Written); !slices.Equal(got, []run{{60, 1}}) {
		t.Errorf("after that: %v", got)
	}
	if got := runs(t, m.PrivateDirty); !slices.Equal(got, []run{{1, 2}, {7, 1}, {9, 1}, {40, 1}, {60, 1}}) {
		t.Errorf("private dirty pages are %v", got)
	}
}

// arm arms runs, and returns the ones to copy.
func arm(t *testing.T, tr *Tracker, some ...run) (armed []run) {
	t.Helper()
	err := tr.Arm(inBytes(some), func(r extent.Run) error {
		armed = append(armed, run{r.Offset / PageSize, r.Length / PageSize})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return armed
}

func inBytes(some []run) (out []extent.Run) {
	for _, r := range some {
		out = append(out, extent.Run{Offset: r.offset * PageSize, Length: r.length * PageSize})
	}
	return out
}

// The pages armed by an earlier tracker, as by a capture with any outcome, do not affect a later
// one. Each must find all private dirty pages except the ones it armed itself.
func TestTrackersKnowNothingOfEachOther(t *testing.T) {
	const pages = 1024
	m := mapped(t, pages)
	random := rand.New(rand.NewPCG(3, 4))
	var own []int64
	for range 50 {
		tr := track(t, m)
		clean := map[int64]bool{} // armed by this tracker, and not written since
		for range random.IntN(4) {
			for range random.IntN(30) {
				from := random.IntN(pages)
				for p := from; p < min(pages, from+1+random.IntN(300)); p++ {
					touchPages(m, p)
					clean[int64(p)] = false
				}
			}
			own = pageSetOf(t, m.PrivateDirty)
			var want []int64
			for _, p := range own {
				if !clean[p] {
					want = append(want, p)
				}
			}
			if got := pageSetOf(t, tr.Written); !slices.Equal(got, want) {
				t.Fatalf("a tracker finds %d pages, want %d of %d own ones", len(got), len(want), len(own))
			}
			var some []run
			for _, r := range runs(t, tr.Written) {
				if random.IntN(4) > 0 {
					some = append(some, r)
				}
			}
			for range random.IntN(30) { // the guest does not wait
				p := random.IntN(pages)
				touchPages(m, p)
				clean[int64(p)] = false
			}
			full := errors.New("the disk is full")
			err := tr.Arm(inBytes(some), func(r extent.Run) error {
				if random.IntN(40) == 0 {
					return full
				}
				for p := range r.Length / PageSize {
					clean[r.Offset/PageSize+p] = true
				}
				return nil
			})
			if errors.Is(err, full) {
				break // the capture has failed half-way
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The separate scan of long runs finds the same pages as a scan without it.
func TestTrackerFindsTheSameInLongRuns(t *testing.T) {
	const pages = 4096
	m := mapped(t, pages)
	tr := track(t, m)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		from := random.IntN(pages)
		end, gap := min(pages, from+random.IntN(600)), 1+random.IntN(2)*random.IntN(3)
		for p := from; p < end; p += gap {
			touchPages(m, p)
		}
		long := tr.armed
		got := pageSetOf(t, tr.Written)
		tr.armed = nil
		want := pageSetOf(t, tr.Written)
		tr.armed = long
		if !slices.Equal(got, want) {
			t.Fatalf("round %d, with long runs %v: %v, want %v", round, long, got, want)
		}
		for i := 1; i < len(long); i++ {
			if long[i-1].End() > long[i].Offset {
				t.Fatalf("long runs overlap: %v", long)
			}
		}
		for _, r := range runs(t, tr.Written) {
			if random.IntN(3) > 0 {
				arm(t, tr, r)
			}
		}
	}
	if len(tr.armed) == 0 {
		t.Error("there was no long run")
	}
}

// pageSetOf returns the pages of runs, independent of their boundaries.
func pageSetOf(t *testing.T, scan func(func(offset, length int64) error) error) (pages []int64) {
	t.Helper()
	for _, r := range runs(t, scan) {
		for p := range r.length {
			pages = append(pages, r.offset+p)
		}
	}
	return pages
}

// BenchmarkWritten measures the scan during a capture's pause: 256 MiB of private pages, all armed,
// with and without the list of long runs.
func BenchmarkWritten(b *testing.B) {
	const size = 256 << 20
	f, err := os.Create(filepath.Join(b.TempDir(), "memory")) // of a file, as a child's: no huge pages
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		b.Fatal(err)
	}
	m, err := Reserve(size)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if err := m.MapFile(0, size, int(f.Fd()), 0); err != nil {
		b.Fatal(err)
	}
	for at := 0; at < size; at += PageSize {
		m.Linear()[at] = 1
	}
	tr, err := m.Track()
	if err != nil {
		b.Skip(err) // Linux before 6.7; the machine's kernel has it
	}
	if err := tr.Arm([]extent.Run{{Length: size}}, func(extent.Run) error { return nil }); err != nil {
		b.Fatal(err)
	}
	long := tr.armed
	for name, armed := range map[string][]extent.Run{"long": long, "page by page": nil} {
		b.Run(name, func(b *testing.B) {
			tr.armed = armed
			for b.Loop() {
				if err := tr.Written(func(int64, int64) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
