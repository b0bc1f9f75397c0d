package kernelpkg

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// sparseTar is a tar of one kernel that is a hole of size bytes (GNU's PAX format 0.1).
func sparseTar(size int) []byte {
	var pax strings.Builder
	for _, r := range []string{fmt.Sprint("GNU.sparse.size=", size), "GNU.sparse.numblocks=1",
		fmt.Sprintf("GNU.sparse.map=%d,0", size)} {
		fmt.Fprintf(&pax, "%d %s\n", len(r)+4, r)
	}
	entry := func(kind byte, name, body string) []byte {
		h := make([]byte, 512)
		copy(h, name)
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00        ", len(body), 0))
		h[156] = kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		h = append(h, body...)
		return append(h, make([]byte, (512-len(body)%512)%512)...)
	}
	return append(append(entry('x', "pax", pax.String()), entry('0', "boot/vmlinuz-6.12.0", "")...), make([]byte, 1024)...)
}

func sparseDeb(size int) []byte {
	return testAr(member{"debian-binary", []byte("2.0\n")}, member{"data.tar", sparseTar(size)})
}

func TestSparseFilesOfPackagesAreRefused(t *testing.T) {
	_, err := readDeb(t.Context(), bufio.NewReader(bytes.NewReader(sparseDeb(16<<20))))
	if err == nil || !strings.Contains(err.Error(), "sparse") {
		t.Errorf("a hole of 16 MiB: %v", err)
	}
}

func TestReadingAPackageStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readDeb(ctx, bufio.NewReader(bytes.NewReader(testDeb(t)))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
