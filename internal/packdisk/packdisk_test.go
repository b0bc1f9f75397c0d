package packdisk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func temp(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sparse makes a disk with a byte at each of the places.
func sparse(t testing.TB, size int64, at ...int64) *os.File {
	t.Helper()
	f := temp(t)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, off := range at {
		if _, err := f.WriteAt([]byte{0xa5}, off); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// unpack reads a disk back as its user would.
func unpack(t *testing.T, packed *os.File) []byte {
	t.Helper()
	size, runs, err := Read(packed)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, size)
	for _, r := range runs {
		if _, err := packed.ReadAt(out[r.Offset:][:r.Length], r.FileOffset); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestPackedAndRead(t *testing.T) {
	for name, disk := range map[string]*os.File{
		"nothing":          sparse(t, 8<<20),
		"ends":             sparse(t, 8<<20, 0, 8<<20-1),
		"odd end":          sparse(t, 8<<20+512, 5000, 8<<20+511),
		"near and far":     sparse(t, 8<<20, 0, 8192, 1<<20, 4<<20, 4<<20+12288),
		"one small sector": sparse(t, 512, 1),
	} {
		t.Run(name, func(t *testing.T) {
			dst := temp(t)
			if err := Pack(dst, disk); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(disk.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(unpack(t, dst), want) {
				t.Error("what was read is not what was packed")
			}
			if st, _ := dst.Stat(); st.Size() > 256<<10 {
				t.Errorf("it takes %d bytes", st.Size())
			}
		})
	}
}

func TestTooManyRunsAreJoined(t *testing.T) {
	var at []int64
	for i := range int64(3 * MaxRuns) {
		at = append(at, i*(128<<10))
	}
	disk, dst := sparse(t, 256<<20, at...), temp(t)
	if err := Pack(dst, disk); err != nil {
		t.Fatal(err)
	}
	if _, runs, err := Read(dst); err != nil || len(runs) > MaxRuns {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

// The index of a disk of 1 MiB with data in its first and third block, version 1.
const golden = "0000000000000000001000000000000000000800000000000010000000000000666f726b6470636b0100000002000000000010000000000000000000bb4dc738"

func TestIndexIsAsDocumented(t *testing.T) {
	b := index(1<<20, []Run{{0, 0, 4096}, {4096, 512 << 10, 4096}})
	if got := hex.EncodeToString(b); got != golden {
		t.Errorf("got %s, want %s", got, golden)
	}
}

func TestDamageIsFound(t *testing.T) {
	disk, dst := sparse(t, 1<<20, 0, 1<<19), temp(t)
	if err := Pack(dst, disk); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(dst.Name())
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "short": good[:20], "cut": good[:len(good)-1], "without its front": good[4096:],
		"flipped": append(bytes.Clone(good[:len(good)-40]), append([]byte{1}, good[len(good)-39:]...)...),
	} {
		f := temp(t)
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(f); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	b := index(1<<20, []Run{{0, 0, 4096}, {4096, 512 << 10, 4096}})
	f.Add(b, int64(len(b)+8192))
	f.Add(b[16:], int64(4096))
	f.Fuzz(func(t *testing.T, tail []byte, length int64) {
		size, runs, err := parse(tail, length)
		if err != nil {
			return
		}
		end, at := int64(0), int64(0)
		for _, r := range runs {
			if r.Offset < end || r.Length <= 0 || r.FileOffset != at || at+r.Length > length {
				t.Errorf("run %+v behind %d", r, end)
			}
			end, at = r.Offset+r.Length, at+r.Length
		}
		if end > size {
			t.Errorf("runs end at %d of %d", end, size)
		}
	})
}
