package guestmem

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// touched is a run reported by Accessed.
type touched struct {
	page, pages int64
	written     bool
}

func accessed(t *testing.T, m *Map) []touched {
	t.Helper()
	var out []touched
	err := m.Accessed(func(offset, length int64, written bool) error {
		out = append(out, touched{offset / PageSize, length / PageSize, written})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fileMap maps a file that is in the page cache, so that neighbours could be mapped along.
func fileMap(t *testing.T) *Map {
	t.Helper()
	const size = 256 * PageSize
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.MapFile(0, size, int(f.Fd()), 0); err != nil {
		t.Fatal(err)
	}
	return m
}

func touch(m *Map) {
	b := m.Linear()
	for _, page := range []int{3, 4, 70} {
		b[page*PageSize] = 1
	}
	for _, page := range []int{5, 100, 101, 102} {
		sink += b[page*PageSize]
	}
}

var sink byte

func TestWatchedMemoryTellsEachPageThatWasTouched(t *testing.T) {
	m := fileMap(t)
	if err := m.Watch(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	touch(m)
	want := []touched{{3, 2, true}, {5, 1, false}, {70, 1, true}, {100, 3, false}}
	if got := accessed(t, m); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMemoryThatIsNotWatchedTellsWhatWasWritten(t *testing.T) {
	m := fileMap(t)
	touch(m)
	want := []touched{{3, 2, true}, {70, 1, true}}
	if got := accessed(t, m); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPopulate(t *testing.T) {
	m := fileMap(t)
	for _, run := range [][2]int64{{-PageSize, PageSize}, {0, 0}, {0, 100}, {m.Size(), PageSize}, {0, m.Size() + PageSize}, {PageSize, 1<<63 - PageSize}} {
		if err := m.Populate(run[0], run[1], true); !errors.Is(err, ErrOutside) {
			t.Errorf("%d bytes at %d: got %v", run[1], run[0], err)
		}
	}
	if err := m.Populate(8*PageSize, 4*PageSize, false); err != nil {
		t.Fatal(err)
	}
	if got := accessed(t, m); len(got) != 0 {
		t.Errorf("populating for reading has written %v", got)
	}
	m.Linear()[20*PageSize] = 7
	if err := m.Populate(20*PageSize, 2*PageSize, true); err != nil {
		t.Fatal(err)
	}
	if got, want := accessed(t, m), []touched{{20, 2, true}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if m.Linear()[20*PageSize] != 7 {
		t.Error("populating has changed the memory")
	}
}
