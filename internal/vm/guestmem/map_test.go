package guestmem

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestLayoutLeavesTheDeviceHole(t *testing.T) {
	for _, size := range []int64{64 << 20, int64(LowMax), int64(LowMax) + PageSize, 8 << 30} {
		var total int64
		for _, r := range Layout(size) {
			if r.Offset != total {
				t.Errorf("size %d: region at %#x has offset %d, want %d", size, r.GPA, r.Offset, total)
			}
			if r.GPA < HighStart && r.GPA+uint64(r.Size) > LowMax {
				t.Errorf("size %d: region %+v reaches into the hole", size, r)
			}
			total += r.Size
		}
		if total != size {
			t.Errorf("size %d: regions sum up to %d", size, total)
		}
	}
}

func newMap(t *testing.T, size int64) *Map {
	t.Helper()
	m, err := Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.MapAnonymous(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAccessOutsideIsAnError(t *testing.T) {
	m := newMap(t, 1<<20)
	for _, c := range []struct {
		gpa uint64
		n   int
	}{{1 << 20, 1}, {1<<20 - 1, 2}, {math.MaxUint64, 1}, {math.MaxUint64 - 3, 8}, {0, -1}, {0, 1<<20 + 1}, {0, math.MaxInt}} {
		if _, err := m.Slice(c.gpa, c.n); !errors.Is(err, ErrOutside) {
			t.Errorf("Slice(%#x, %d): %v, want ErrOutside", c.gpa, c.n, err)
		}
	}
	for _, gpa := range []uint64{1, 1 << 20, 1<<20 - 2, math.MaxUint64} {
		if _, err := m.LoadUint32(gpa); !errors.Is(err, ErrOutside) {
			t.Errorf("LoadUint32(%#x): %v, want ErrOutside", gpa, err)
		}
	}
	if _, err := m.Slice(1<<20, 0); err != nil {
		t.Errorf("empty slice at the very end: %v", err)
	}
}

func TestHighMemoryIsReachedAcrossTheHole(t *testing.T) {
	m := newMap(t, int64(LowMax)+1<<20)
	if err := m.WriteAt([]byte("high"), HighStart); err != nil {
		t.Fatal(err)
	}
	if got := m.Linear()[LowMax : LowMax+4]; string(got) != "high" {
		t.Fatalf("linear image holds %q", got)
	}
	if _, err := m.Slice(LowMax-1, 2); err == nil {
		t.Fatal("a slice into the hole was allowed")
	}
}

func TestFileIsMappedCopyOnWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	content := bytes.Repeat([]byte{7}, 2*PageSize)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path) // read only: enough for a private mapping
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := newMap(t, 4*PageSize)
	if err := m.MapFile(PageSize, 2*PageSize, int(f.Fd()), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.StoreUint32(PageSize, 0x01020304); err != nil {
		t.Fatal(err)
	}
	b, _ := m.Slice(0, 4*PageSize)
	if b[0] != 0 || b[PageSize] != 4 || b[PageSize+4] != 7 || b[3*PageSize] != 0 {
		t.Fatal("mapping is not where it should be")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, content) {
		t.Fatal("a private write reached the file")
	}
	if err := m.MapFile(3*PageSize, 2*PageSize, int(f.Fd()), 0); !errors.Is(err, ErrOutside) {
		t.Fatalf("mapping beyond the end: %v, want ErrOutside", err)
	}
}
