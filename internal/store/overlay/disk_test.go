package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/virtio/blk"
)

var (
	_ blk.Backend   = (*Disk)(nil)
	_ blk.Discarder = (*Disk)(nil)
)

const testSize = 4 << 20

func mustOpen(t testing.TB, own *os.File, base ...extent.Extent) *Disk {
	t.Helper()
	d, err := Open(own, testSize, base)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func baseOf(t testing.TB, b byte) extent.Extent {
	t.Helper()
	f := tempFile(t, "base")
	if _, err := f.Write(fill(b, testSize)); err != nil {
		t.Fatal(err)
	}
	return extent.Extent{File: f, Length: testSize}
}

func write(t testing.TB, d *Disk, b byte, off int64, n int) {
	t.Helper()
	if _, err := d.WriteAt(fill(b, n), off); err != nil {
		t.Fatal(err)
	}
}

func wantAt(t testing.TB, d *Disk, b byte, off int64, n int) {
	t.Helper()
	got := make([]byte, n)
	if _, err := d.ReadAt(got, off); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, fill(b, n)) {
		t.Errorf("at %d is not %d bytes of %d", off, n, b)
	}
}

func stat(t testing.TB, f *os.File) *syscall.Stat_t {
	t.Helper()
	st, err := f.Stat()
	must(t, err)
	return st.Sys().(*syscall.Stat_t)
}

func TestAnUnwrittenDiskHasAnEmptyFile(t *testing.T) {
	own := tempFile(t, "own")
	d := mustOpen(t, own, baseOf(t, 7))
	wantAt(t, d, 7, 0, testSize)
	must(t, d.Flush())
	if n := stat(t, own).Size; n != 0 {
		t.Errorf("the overlay file has %d bytes", n)
	}
}

func TestWhatIsFlushedIsThereAfterwards(t *testing.T) {
	own, base := tempFile(t, "own"), baseOf(t, 7)
	d := mustOpen(t, own, base)
	write(t, d, 1, 4096+512, 1024)
	must(t, d.Flush())
	write(t, d, 2, 1<<20, 4096) // not flushed: the block comes from the base again
	d = mustOpen(t, own, base)
	wantAt(t, d, 7, 4096, 512)
	wantAt(t, d, 1, 4096+512, 1024)
	wantAt(t, d, 7, 4096+1536, 8192)
	wantAt(t, d, 7, 1<<20, 4096)
}

// The content of a block that lost its bit must not show after a later discard.
func TestDiscardOverTheRemainsOfACrash(t *testing.T) {
	own, base := tempFile(t, "own"), baseOf(t, 7)
	write(t, mustOpen(t, own, base), 2, 0, 8192)
	d := mustOpen(t, own, base)
	must(t, d.Discard(0, 4096))
	wantAt(t, d, 0, 0, 4096)
	wantAt(t, d, 7, 4096, 4096)
}

func TestDiscardFrees(t *testing.T) {
	own := tempFile(t, "own")
	d := mustOpen(t, own, baseOf(t, 7))
	write(t, d, 1, 0, testSize)
	must(t, d.Flush())
	full := stat(t, own).Blocks
	must(t, d.Discard(1<<20, 2<<20))
	must(t, d.Flush())
	if freed := (full - stat(t, own).Blocks) * 512; freed < 2<<20-64<<10 {
		t.Errorf("a discard of 2 MiB freed %d bytes", freed)
	}
	wantAt(t, d, 0, 1<<20, 2<<20)
	must(t, d.WriteZeroes(0, 1<<20))
	must(t, d.Flush())
	if freed := (full - stat(t, own).Blocks) * 512; freed < 3<<20-64<<10 {
		t.Errorf("zeroes over 1 MiB more freed %d bytes together", freed)
	}
}

func TestOwnTellsRuns(t *testing.T) {
	d := mustOpen(t, tempFile(t, "own"), baseOf(t, 7))
	write(t, d, 1, 8192, 8192)
	must(t, d.WriteZeroes(16384, 4096))
	must(t, d.Discard(1<<20, 65536))
	write(t, d, 3, testSize-512, 512)
	var got []string
	must(t, d.Allocated(func(off, n int64, zero bool) error {
		got = append(got, fmt.Sprint(off, "+", n, " ", zero))
		return nil
	}))
	want := "8192+8192 false, 16384+4096 true, 1048576+65536 true, 4190208+4096 false"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	errStop := errors.New("stop")
	if err := d.Allocated(func(int64, int64, bool) error { return errStop }); !errors.Is(err, errStop) {
		t.Errorf("got %v", err)
	}
}

func TestSiblingsDoNotSeeEachOther(t *testing.T) {
	base := baseOf(t, 7)
	var all sync.WaitGroup
	for i := range 8 {
		d := mustOpen(t, tempFile(t, "own"), base)
		all.Go(func() {
			b := byte(10 + i)
			for off := int64(i) * 4096; off < testSize; off += 8 * 4096 {
				if _, err := d.WriteAt(fill(b, 1024), off); err != nil {
					t.Error(err)
				}
			}
			if err := d.Flush(); err != nil {
				t.Error(err)
			}
			for off := int64(0); off < testSize; off += 4096 {
				want := byte(7)
				if off/4096%8 == int64(i) {
					want = b
				}
				wantAt(t, d, want, off, 1024)
			}
		})
	}
	all.Wait()
	wantAt(t, mustOpen(t, tempFile(t, "own"), base), 7, 0, testSize)
}

// The kernel reports a failed writeback only once, but the data is lost.
func TestAFailedFlushIsNotForgotten(t *testing.T) {
	f := newFake()
	d, err := open(f, testSize, nil)
	must(t, err)
	write(t, d, 1, 0, 4096)
	errMedium := errors.New("medium")
	f.fail = func(op string) error {
		if op == "sync" {
			return errMedium
		}
		return nil
	}
	for range 2 {
		if err := d.Flush(); !errors.Is(err, errMedium) {
			t.Fatalf("flush: %v", err)
		}
		f.fail = nil
	}
}

func TestRefusals(t *testing.T) {
	base := baseOf(t, 7)
	for _, c := range []struct {
		name, want string
		size       int64
		base       []extent.Extent
	}{
		{"no size", "want whole sectors", 0, nil},
		{"half a sector", "want whole sectors", 100, nil},
		{"beyond all bounds", "want whole sectors", MaxSize + 512, nil},
		{"no file", "has no file", testSize, []extent.Extent{{Length: 512}}},
		{"overlap", "before the end", testSize, []extent.Extent{{File: base.File, FileOffset: 0, Offset: 0, Length: 1024}, {File: base.File, FileOffset: 0, Offset: 512, Length: 1024}}},
		{"descending", "before the end", testSize, []extent.Extent{{File: base.File, FileOffset: 0, Offset: 8192, Length: 1024}, {File: base.File, FileOffset: 0, Offset: 0, Length: 1024}}},
		{"beyond the disk", "beyond the image", 4096, []extent.Extent{{File: base.File, FileOffset: 0, Offset: 4096, Length: 512}}},
		{"beyond the file", "of a file of", 2 * testSize, []extent.Extent{{File: base.File, FileOffset: 512, Offset: 0, Length: testSize}}},
		{"overflow", "of a file of", testSize, []extent.Extent{{File: base.File, FileOffset: 1<<63 - 1, Offset: 0, Length: 1024}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Open(tempFile(t, "own"), c.size, c.base); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	d := mustOpen(t, tempFile(t, "own"), base)
	for _, off := range []int64{-1, testSize, testSize - 511, 1 << 62} {
		if _, err := d.WriteAt(make([]byte, 512), off); err == nil {
			t.Errorf("a write at %d was taken", off)
		}
		if d.Discard(off, 4096) == nil || d.WriteZeroes(off, 4096) == nil {
			t.Errorf("a discard at %d was taken", off)
		}
	}
}

func TestABaseCutShortIsAnError(t *testing.T) {
	base := baseOf(t, 7)
	d := mustOpen(t, tempFile(t, "own"), base)
	must(t, base.File.Truncate(4096))
	if _, err := d.ReadAt(make([]byte, 4096), 4096); err == nil {
		t.Error("what is not there was read")
	}
	if _, err := d.WriteAt(make([]byte, 512), 4096); err == nil {
		t.Error("a block was completed from what is not there")
	}
	wantAt(t, d, 7, 0, 4096)
}
