package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// deep packs n files, each below depth folders.
func deep(t testing.TB, n, depth int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for i := range n {
		name := strings.Repeat("a/", depth) + fmt.Sprint(i)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func scan(b []byte, lim Limits) error {
	_, err := Scan(context.Background(), bytes.NewReader(b), lim)
	return err
}

func TestDepthIsBounded(t *testing.T) {
	b := deep(t, 10, 2040)
	if err := scan(b, Limits{Bytes: 8 << 30, Entries: 500_000}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("2040 folders deep: %v", err)
	}
	if err := scan(deep(t, 10, 60), roomy); err != nil {
		t.Errorf("60 folders deep: %v", err)
	}
}

func TestNamesAreBounded(t *testing.T) {
	b := deep(t, 100, 60)
	if err := scan(b, Limits{Bytes: 1 << 20, Entries: 1000, Names: 5000}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("12000 bytes of names: %v", err)
	}
	l := Layout{Source: ".", Dest: "/" + strings.Repeat("d/", 2000), Mode: -1}
	if _, err := Rewrite(t.Context(), bytes.NewReader(deep(t, 1, 90)), io.Discard, l, roomy); !errors.Is(err, ErrBad) {
		t.Errorf("a path of more than 4095 bytes in the guest: %v", err)
	}
}

// Any number of headers may precede the header of an entry. archive/tar reads them all in one call.
func TestHeadersAreBounded(t *testing.T) {
	var b []byte
	for range 400 {
		b = append(b, rawEntry('L', "././@LongLink", []byte(strings.Repeat("n", 1000)))...)
	}
	b = append(b, rawEntry('0', "f", nil)...)
	b = append(b, make([]byte, 1024)...)
	if err := scan(b, roomy); !errors.Is(err, ErrTooLarge) {
		t.Errorf("400 long names before a file: %v", err)
	}
}

func TestTheRatioIsBounded(t *testing.T) {
	b := zip(pack(t, file("zeros", strings.Repeat("\x00", 4<<20))))
	lim := Limits{Bytes: 1 << 30, Entries: 10, Unpacked: 1 << 20}
	if err := scan(b, lim); !errors.Is(err, ErrTooLarge) {
		t.Errorf("4 MiB out of %d bytes: %v", len(b), err)
	}
	if err := scan(b, Limits{Bytes: 1 << 30, Entries: 10}); err != nil {
		t.Errorf("below the size from which the ratio counts: %v", err)
	}
}

func TestSparseFilesAreRefused(t *testing.T) {
	var pax string
	for _, r := range []string{"GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=512", "GNU.sparse.numblocks=1",
		"GNU.sparse.map=0,1"} {
		pax += fmt.Sprintf("%d %s\n", len(r)+4, r)
	}
	b := append(rawEntry('x', "p", []byte(pax)), rawEntry('0', "s", []byte("x"))...)
	b = append(b, make([]byte, 1024)...)
	if err := scan(b, roomy); !errors.Is(err, ErrBad) {
		t.Errorf("a sparse file: %v", err)
	}
}

func TestACancelledContextEndsTheWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := pack(t, file("a", "a"))
	if _, err := Scan(ctx, bytes.NewReader(b), roomy); !errors.Is(err, context.Canceled) {
		t.Errorf("scan: %v", err)
	}
	_, err := Rewrite(ctx, bytes.NewReader(b), io.Discard, Layout{Source: ".", Dest: "/x", Mode: -1}, roomy)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("rewrite: %v", err)
	}
}

// TestNamesDoNotKeepTheirHeaders checks the memory of names. archive/tar cuts names out of extended
// headers.
func TestNamesDoNotKeepTheirHeaders(t *testing.T) {
	const entries, header = 500, 100 << 10
	tr := newTree(entries)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range entries {
		block := fmt.Sprintf("f%08d", i) + strings.Repeat("x", header)
		if _, err := tr.check(&tar.Header{Typeflag: tar.TypeReg, Name: block[:9]}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > entries*header/10 {
		t.Errorf("%d names of 9 bytes keep %d KiB", len(tr.kinds), kept>>10)
	}
}
