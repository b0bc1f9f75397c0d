package overlay

import (
	"encoding/hex"
	"errors"
	"os"
	"testing"
)

// The trailer's fields in version 2, in hex.
const goldenTrailer = "666f726b646f776e02000000001000000000400000000000000040000000000000100000"

func TestTrailerIsAsDocumented(t *testing.T) {
	b := layoutOf(4 << 20).trailer()
	if got := hex.EncodeToString(b[:36]); got != goldenTrailer {
		t.Errorf("got %s, want %s", got, goldenTrailer)
	}
	if size, err := parseTrailer(b, layoutOf(4<<20).total()); err != nil || size != 4<<20 {
		t.Errorf("got %d, %v", size, err)
	}
}

func TestAnotherOrDamagedFileIsRefused(t *testing.T) {
	for name, damage := range map[string]func(f *os.File) error{
		"cut":     func(f *os.File) error { return f.Truncate(4096) },
		"short":   func(f *os.File) error { return f.Truncate(100) },
		"longer":  func(f *os.File) error { return f.Truncate(64 << 20) },
		"flipped": func(f *os.File) error { _, err := f.WriteAt([]byte{1}, layoutOf(testSize).trailerAt()+17); return err },
		"magic":   func(f *os.File) error { _, err := f.WriteAt([]byte{1}, layoutOf(testSize).trailerAt()); return err },
		"behind it": func(f *os.File) error {
			_, err := f.WriteAt([]byte{1}, layoutOf(testSize).trailerAt()+4000)
			return err
		},
		"other size": func(f *os.File) error {
			l := layoutOf(2 * testSize)
			if err := f.Truncate(0); err != nil {
				return err
			}
			_, err := f.WriteAt(l.trailer(), l.trailerAt())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := tempFile(t, "own")
			d := mustOpen(t, own)
			write(t, d, 1, 0, 4096)
			must(t, d.Flush())
			must(t, damage(own))
			if _, err := Open(own, testSize, nil); !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzTrailer(f *testing.F) {
	l := layoutOf(4 << 20)
	f.Add(l.trailer(), l.total())
	f.Add([]byte("forkdown"), int64(4096))
	f.Fuzz(func(t *testing.T, b []byte, length int64) {
		size, err := parseTrailer(b, length)
		if err == nil && layoutOf(size).total() != length {
			t.Errorf("a file of %d bytes was taken for a disk of %d", length, size)
		}
	})
}

// FuzzMap opens a file with any bitmap, which must only decide which blocks are allocated.
func FuzzMap(f *testing.F) {
	f.Add([]byte{1, 2, 0xff}, uint32(300_000))
	f.Add([]byte{}, uint32(512))
	f.Fuzz(func(t *testing.T, m []byte, size uint32) {
		l := layoutOf(max(512, int64(size%(300<<20))/512*512))
		if int64(len(m)) > l.trailerAt()-l.mapAt() {
			return
		}
		own := newFake()
		must(t, own.writeAll([][]byte{m}, l.mapAt()))
		must(t, own.writeAll([][]byte{l.trailer()}, l.trailerAt()))
		d, err := open(own, l.size, nil)
		must(t, err)
		must(t, d.Allocated(func(off, n int64, _ bool) error {
			if off < 0 || n <= 0 || off+n > l.size {
				t.Errorf("run of %d bytes at %d of %d", n, off, l.size)
			}
			return nil
		}))
		_, err = d.WriteAt(make([]byte, 512), l.size-512)
		must(t, err)
		must(t, d.Flush())
	})
}
