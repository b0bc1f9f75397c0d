package kernelpkg

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/tartest"
)

// sparseTar returns a tar with a kernel that is a hole of size bytes (GNU's PAX format 0.1).
func sparseTar(size int) []byte {
	var pax strings.Builder
	for _, r := range []string{fmt.Sprint("GNU.sparse.size=", size), "GNU.sparse.numblocks=1",
		fmt.Sprintf("GNU.sparse.map=%d,0", size)} {
		fmt.Fprintf(&pax, "%d %s\n", len(r)+4, r)
	}
	return append(append(tartest.Entry('x', "pax", []byte(pax.String()), nil),
		tartest.Entry('0', "boot/vmlinuz-6.12.0", nil, nil)...), make([]byte, 1024)...)
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
