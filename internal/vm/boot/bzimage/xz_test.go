package bzimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// calls returns code full of near calls and jumps, some of them close together, from a simple
// generator. testdata/calls.xz is the same code, packed by xz --check=crc32 --x86
// --lzma2=dict=32MiB.
func calls() []byte {
	var b []byte
	x := uint32(1)
	next := func() uint32 { x = x*1664525 + 1013904223; return x >> 8 }
	for range 4000 {
		switch next() % 8 {
		case 0, 1, 2:
			b = append(b, 0xe8|byte(next()&1))
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(next()<<10)>>10))
		case 3: // operands that equal opcodes
			b = append(b, 0xe8, byte(next()), 0xe9, byte(next()), 0, 0xe8, 0xff, byte(next()))
		case 4:
			b = append(b, 0xe8, 0xe8, 0xe9, 0, 0xff, 0xff)
		default:
			b = append(b, byte(next()%3)*0x7f, 0x90, byte(next()))
		}
	}
	return b
}

func TestX86Filter(t *testing.T) {
	packed, err := os.ReadFile(filepath.Join("testdata", "calls.xz"))
	if err != nil {
		t.Fatal(err)
	}
	want := calls()
	got, err := inflate(t.Context(), "xz", openXZ, packed, int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("byte %d of %d is %#x, want %#x", i, len(want), got[i], want[i])
			}
		}
	}
}

func TestDamagedXZHeaders(t *testing.T) {
	packed, err := os.ReadFile(filepath.Join("testdata", "calls.xz"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 32 {
		if _, err := inflate(t.Context(), "xz", openXZ, packed[:n], 1000); err == nil {
			t.Errorf("%d bytes are accepted", n)
		}
	}
	packed[14] = 0x7e // the first filter's id
	if _, err := openXZ(t.Context(), packed, 1000); err == nil {
		t.Error("an unknown filter is accepted")
	}
}

// lying returns an xz payload with a header that requests a dictionary of 4 GiB.
func lying(t testing.TB, plain []byte) []byte {
	t.Helper()
	b := pack(t, "xz", plain)
	header := b[12 : 12+(int(b[12])+1)*4]
	at := bytes.Index(header, []byte{filterLZMA2, 1}) + 2
	header[at] = 40
	end := len(header) - 4
	binary.LittleEndian.PutUint32(header[end:], crc32.ChecksumIEEE(header[:end]))
	return b
}

func TestADictionaryIsNoLargerThanTheKernel(t *testing.T) {
	kernel := testELF(t)
	file := wrap(lying(t, kernel))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := Extract(t.Context(), "vmlinuz", file)
	runtime.ReadMemStats(&after)
	if err != nil || !bytes.Equal(got, kernel) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 32 {
		t.Errorf("a kernel of %d KiB took %d MiB", len(kernel)>>10, n)
	}
}

func TestExtractStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the user's wish")
	cancel(reason)
	for _, format := range []string{"gzip", "zstd", "xz", "lz4"} {
		if _, err := Extract(ctx, "vmlinuz", wrap(pack(t, format, testELF(t)))); !errors.Is(err, reason) {
			t.Errorf("%s: %v", format, err)
		}
	}
}
