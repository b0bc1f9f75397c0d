package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/tartest"
)

// sparseStreams returns a stream for each form of sparse files; in each, the kernel is a hole of size bytes.
func sparseStreams(t testing.TB, size int) map[string][]byte {
	t.Helper()
	m := testMetadata("a")
	zeros := make([]byte, size)
	m.Files[KernelFile] = FileSum{Size: int64(size), SHA256: sum(zeros)}
	meta, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	f := testFilesOf("a")
	rest := tarOf(t, InitrdFile, string(f[InitrdFile]), RootFile, string(f[RootFile]))
	start := bytes.TrimSuffix(tarOf(t, MetadataFile, string(meta)), make([]byte, 1024))
	join := func(kernel ...[]byte) []byte {
		return bytes.Join([][]byte{start, bytes.Join(kernel, nil), rest}, nil)
	}
	pax := func(records ...string) []byte {
		var b strings.Builder
		for _, r := range records {
			n := len(r) + 2
			for n != len(fmt.Sprint(n))+len(r)+2 {
				n = len(fmt.Sprint(n)) + len(r) + 2
			}
			fmt.Fprintf(&b, "%d %s\n", n, r)
		}
		return tartest.Entry(tar.TypeXHeader, "pax", []byte(b.String()), nil)
	}
	length := fmt.Sprint(size)
	return map[string][]byte{
		"PAX 1.0": join(pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name="+KernelFile,
			"GNU.sparse.realsize="+length), tartest.Entry(tar.TypeReg, "x", append([]byte("1\n"+length+"\n0\n"), make([]byte, 500)...)[:512], nil)),
		"PAX 0.1": join(pax("GNU.sparse.size="+length, "GNU.sparse.numblocks=1", "GNU.sparse.map="+length+",0"),
			tartest.Entry(tar.TypeReg, KernelFile, nil, nil)),
		"old GNU": join(tartest.Entry(tar.TypeGNUSparse, KernelFile, nil, func(h []byte) {
			copy(h[257:], "ustar  \x00")
			copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
			copy(h[483:], fmt.Sprintf("%011o\x00", size))
		})),
	}
}

func TestImportRefusesSparseFiles(t *testing.T) {
	for form, stream := range sparseStreams(t, 8<<20) {
		t.Run(form, func(t *testing.T) {
			s := openTestStore(t)
			_, err := s.Import(t.Context(), bytes.NewReader(stream))
			if err == nil || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "does not belong") {
				t.Errorf("8 MiB from a stream of %d KiB: %v", len(stream)>>10, err)
			}
			onlyNames(t, s)
		})
	}
}

// TestReceiveStopsWithItsContext covers a file whose bytes have all arrived.
func TestReceiveStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), KernelFile)
	err := receiveFile(ctx, path, strings.NewReader("kernel"), FileSum{Size: 6, SHA256: sum([]byte("kernel"))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
