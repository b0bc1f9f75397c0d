package vecio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// pieces splits p into buffers with the given sizes in turn, including empty ones.
func pieces(p []byte, sizes ...int) (bufs [][]byte) {
	for i := 0; len(p) > 0; i++ {
		n := min(sizes[i%len(sizes)], len(p))
		bufs, p = append(bufs, p[:n:n]), p[n:]
	}
	return bufs
}

func TestManyBuffersArriveWhole(t *testing.T) {
	f := newFile(t)
	want := make([]byte, 3000)
	for i := range want {
		want[i] = byte(i % 251)
	}
	// More buffers than one call accepts.
	if err := WriteAt(f, pieces(bytes.Clone(want), 1, 0, 2), 5); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := ReadAt(f, pieces(got, 2, 0, 1), 5); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; other bytes arrived", err)
	}
	if err := ReadAt(f, [][]byte{make([]byte, 10)}, 3000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("behind the end: %v", err)
	}
	if err := ReadAt(f, nil, 0); err != nil {
		t.Error(err)
	}
}

func TestPunch(t *testing.T) {
	f := newFile(t)
	const n = 64 << 10
	if err := WriteAt(f, [][]byte{bytes.Repeat([]byte{7}, n)}, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Punch(f, 4096, 8192), Punch(f, 0, 0)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	want := bytes.Repeat([]byte{7}, n)
	clear(want[4096 : 4096+8192])
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; the file is another", err)
	}
}
