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

// testPage returns the first byte of a page.
func (m *Map) testPage(p int) *byte { return &m.Linear()[p*PageSize] }

func discard(t *testing.T, m *Map, page, pages int) {
	t.Helper()
	if err := m.Discard(GPA(page*PageSize), int64(pages)*PageSize); err != nil {
		t.Fatal(err)
	}
}

// mappedOver returns memory with a file mapped in its first half. Each page of the file begins with
// its number.
func mappedOver(t *testing.T, pages int) *Map {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, pages*PageSize)
	for p := range pages {
		b[p*PageSize] = byte(p)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	m, err := Reserve(int64(pages) * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	half := int64(pages/2) * PageSize
	if err := errors.Join(m.MapFile(0, half, int(f.Fd()), 0), m.MapZero(half, m.Size()-half)); err != nil {
		t.Fatal(err)
	}
	return m
}

// Discarded pages read as the mapped content, and are not private.
func TestDiscardGivesBackWhatWasWritten(t *testing.T) {
	m := mappedOver(t, 64)
	for p := range 64 {
		*m.testPage(p) = 0xff
	}
	discard(t, m, 10, 4)
	discard(t, m, 40, 2)
	for p, want := range map[int]byte{9: 0xff, 10: 10, 13: 13, 14: 0xff, 39: 0xff, 40: 0, 41: 0, 42: 0xff} {
		if got := *m.testPage(p); got != want {
			t.Errorf("page %d begins with %#x, want %#x", p, got, want)
		}
	}
	own := extent.NewPageSet(m.Size())
	for _, r := range runs(t, m.PrivateDirty) {
		own.Add(r.offset*PageSize, r.length*PageSize)
	}
	if want := int64(64-6) * PageSize; own.Bytes() != want {
		t.Errorf("%d bytes are the memory's own, want %d", own.Bytes(), want)
	}
}

func TestDiscardRefusesWhatIsNotWholePagesOfMemory(t *testing.T) {
	m := mappedOver(t, 4)
	for _, c := range [][2]int64{{1, PageSize}, {0, PageSize - 1}, {0, 0}, {0, -PageSize}, {4 * PageSize, PageSize}, {0, 5 * PageSize}} {
		if err := m.Discard(GPA(c[0]), c[1]); !errors.Is(err, ErrOutside) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
}

func TestNothingIsDiscardedFromRetainedMemory(t *testing.T) {
	m := mappedOver(t, 8)
	*m.testPage(1) = 0xff
	first, second := m.Retain(), m.Retain()
	first()
	discard(t, m, 1, 1)
	if *m.testPage(1) != 0xff {
		t.Error("the page went")
	}
	second()
	discard(t, m, 1, 1)
	if *m.testPage(1) != 1 {
		t.Error("the page is still there")
	}
}

// Pages that a tracker has protected, and that are discarded after its capture, are in no later
// capture until they are written again. This holds for pages of a file and of zeros.
func TestDiscardedPagesAreInNoLaterCapture(t *testing.T) {
	m := mappedOver(t, 64)
	touchPages(m, 1, 2, 3, 20, 40, 41)
	arm(t, track(t, m), run{1, 3}, run{20, 1}, run{40, 2})
	discard(t, m, 2, 1)
	discard(t, m, 18, 4)
	discard(t, m, 41, 5)
	want := []run{{1, 1}, {3, 1}, {40, 1}}
	if got := runs(t, m.PrivateDirty); !slices.Equal(got, want) {
		t.Errorf("the memory's own are %v, want %v", got, want)
	}
	tr := track(t, m)
	if got := runs(t, tr.Written); !slices.Equal(got, want) {
		t.Errorf("to be captured are %v, want %v", got, want)
	}
	arm(t, tr, want...)
	_ = *m.testPage(20) // a read is not a write
	touchPages(m, 2, 41)
	if got := runs(t, tr.Written); !slices.Equal(got, []run{{2, 1}, {41, 1}}) {
		t.Errorf("written since are %v", got)
	}
	if *m.testPage(2) != 3 || *m.testPage(41) != 1 || *m.testPage(20) != 20 {
		t.Error("a page that was written again has another content")
	}
}

// Captures of memory that is alternately written and discarded have its content, and all of its
// private pages.
func TestCapturesBetweenDiscards(t *testing.T) {
	const pages = 1024
	m := mappedOver(t, pages)
	random := rand.New(rand.NewPCG(3, 4))
	base := slices.Clone(m.Linear())
	for range 30 {
		for range random.IntN(200) {
			p := random.IntN(pages)
			*m.testPage(p) = byte(random.Uint32())
		}
		for range random.IntN(8) {
			p := random.IntN(pages - 64)
			discard(t, m, p, 1+random.IntN(64))
		}
		release := m.Retain()
		tr := track(t, m)
		image := slices.Clone(base)
		take := func(r extent.Run) error {
			copy(image[r.Offset:r.End()], m.Linear()[r.Offset:r.End()])
			return nil
		}
		for range 3 {
			var left []extent.Run
			for _, r := range runs(t, tr.Written) {
				left = append(left, extent.Run{Offset: r.offset * PageSize, Length: r.length * PageSize})
			}
			if err := tr.Arm(left, take); err != nil {
				t.Fatal(err)
			}
			for range random.IntN(20) {
				*m.testPage(random.IntN(pages))++
			}
			discard(t, m, random.IntN(pages-64), 64) // retained: the memory stays
		}
		for _, r := range runs(t, tr.Written) {
			if err := take(extent.Run{Offset: r.offset * PageSize, Length: r.length * PageSize}); err != nil {
				t.Fatal(err)
			}
		}
		release()
		for p := range pages {
			if image[p*PageSize] != *m.testPage(p) {
				t.Fatalf("page %d was captured as %#x, it begins with %#x", p, image[p*PageSize], *m.testPage(p))
			}
		}
	}
}
