package pagedigest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mustOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func page(fill byte) []byte { return bytes.Repeat([]byte{fill}, PageSize) }

// The VMM and the daemon must use the same hash.
func TestHashIsFixed(t *testing.T) {
	if got := Hash(page(0)); got != Zero {
		t.Errorf("a page of zeros has %#x", got)
	}
	if got := Hash(page(7)); got != 0x3a87189f177566c3 {
		t.Errorf("a page of sevens has %#x", got)
	}
	if Hash([]byte("end")) != Hash(append([]byte("end"), make([]byte, PageSize-3)...)) {
		t.Error("a page that is cut short is not as if zeros followed")
	}
}

// sparse returns a file with holes, and its content.
func sparse(t *testing.T, random *rand.Rand, size int64) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	mustOK(t, err)
	t.Cleanup(func() { f.Close() })
	mustOK(t, f.Truncate(size))
	content := make([]byte, size)
	for range random.IntN(20) {
		at := random.Int64N(size)
		b := content[at:min(size, at+random.Int64N(longHole))]
		if random.IntN(3) > 0 { // otherwise zeros that are not a hole
			for i := range b {
				b[i] = byte(random.Uint32())
			}
		}
		_, err := f.WriteAt(b, at)
		mustOK(t, err)
	}
	return f, content
}

func nextData(f *os.File, size int64) func(int64) (int64, error) {
	return func(at int64) (int64, error) {
		n, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return size, nil
		}
		return n, err
	}
}

// For any layout of holes and data, the hashes match the content.
func TestHolesAreZeros(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		size := 1 + random.Int64N(4*longHole)
		f, content := sparse(t, random, size)
		got, err := Of(f, size, nextData(f, size))
		mustOK(t, err)
		var want []uint64
		for p := range slices.Chunk(content, PageSize) {
			want = append(want, Hash(p))
		}
		if err := Compare(Digests{Memory: got}, Digests{Memory: want}); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		plain, err := Of(f, size, nil)
		mustOK(t, err)
		if !slices.Equal(plain, want) {
			t.Fatalf("%d bytes, read as a whole, differ", size)
		}
	}
}

// A huge empty disk takes neither time nor reads.
func TestHugeHolesAreFast(t *testing.T) {
	const size = 4 << 30
	got, err := Of(bytes.NewReader(nil), size, func(int64) (int64, error) { return size, nil })
	if err != nil || len(got) != size/PageSize || got[size/PageSize-1] != Zero {
		t.Errorf("%d hashes, %v", len(got), err)
	}
}

func TestReadGivesWhatWasWritten(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file)
	w.Data(append(page(1), page(2)...))
	w.Zeros(1)
	mustOK(t, w.Image(strings.NewReader("short"), 5, nil))
	mustOK(t, w.Flush())
	if file.Len() != 4*8 || binary.LittleEndian.Uint64(file.Bytes()[16:]) != Zero {
		t.Fatalf("the file is % x", file.Bytes())
	}
	d, err := Read(&file, 3*PageSize, 5)
	mustOK(t, err)
	want := Digests{Memory: []uint64{Hash(page(1)), Hash(page(2)), Zero}, Disks: [][]uint64{{Hash([]byte("short"))}}}
	if err := Compare(d, want); err != nil {
		t.Error(err)
	}
}

func TestCompareNamesThePages(t *testing.T) {
	want := Digests{Memory: []uint64{1, 2, Zero}, Disks: [][]uint64{{5}}}
	for _, c := range []struct {
		got  Digests
		says string
	}{
		{Digests{Memory: []uint64{1, Zero, 9}, Disks: want.Disks}, "memory: 2 of 3 pages differ: 1 (zeros, should not be), 2 (should be zeros)"},
		{Digests{Memory: []uint64{1, 2}, Disks: want.Disks}, "memory: 2 pages, want 3"},
		{Digests{Memory: want.Memory}, "0 disks, want 1"},
		{Digests{Memory: want.Memory, Disks: [][]uint64{{6}}}, "disk 0: 1 of 1 pages differ: 0"},
	} {
		if err := Compare(c.got, want); err == nil || err.Error() != c.says {
			t.Errorf("it says %v, want %q", err, c.says)
		}
	}
}

func TestReadRefusesAnotherLength(t *testing.T) {
	for name, c := range map[string]struct {
		n            int
		memory, disk int64
	}{
		"nothing": {0, PageSize, 0}, "memory only": {8, PageSize, 1}, "half a hash": {12, PageSize, 1},
		"more": {17, PageSize, 1}, "a negative size": {0, -1, 0},
	} {
		if d, err := Read(bytes.NewReader(make([]byte, c.n)), c.memory, c.disk); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, unix.ENOSPC
	}
	return len(b), nil
}

func (f *failing) ReadAt([]byte, int64) (int, error) { return 0, unix.EIO }

func TestErrorsAreTold(t *testing.T) {
	w := NewWriter(&failing{after: 1})
	w.Zeros(3 * bufferPages)
	if err := w.Flush(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if _, err := Of(&failing{}, PageSize, nil); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(make([]byte, 24), int64(PageSize), int64(PageSize+1))
	f.Add([]byte{1}, int64(1)<<62, int64(0))
	f.Add([]byte{}, int64(math.MaxInt64), int64(0))
	f.Fuzz(func(t *testing.T, file []byte, memory, disk int64) {
		d, err := Read(bytes.NewReader(file), memory, disk)
		if err != nil {
			return
		}
		if int64(len(file)) != 8*(Pages(memory)+Pages(disk)) || len(d.Memory)+len(d.Disks[0]) != len(file)/8 {
			t.Fatalf("%d bytes were taken for %d pages of memory and %d blocks", len(file), Pages(memory), Pages(disk))
		}
	})
}
