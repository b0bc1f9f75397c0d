package wire

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// file creates a file with the given content.
func file(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// manyExtents returns more extents than fit a message.
func manyExtents(files []*os.File, n int) []extent.Extent {
	out := []extent.Extent{{Length: 1 << 40}} // zero pages
	for i := range n - 1 {
		out = append(out, extent.Extent{File: files[i%len(files)], FileOffset: int64(i) << 12, Offset: int64(2*i) << 12, Length: 4096})
	}
	return out
}

func TestATableOfAnySizeArrives(t *testing.T) {
	files := []*os.File{file(t, "a"), file(t, "b")}
	for _, n := range []int{1, 2, maxInline / extentBytes, maxInline/extentBytes + 1, 20000} {
		want := vmm.RestoreConfig{State: file(t, "s"), Memory: manyExtents(files, n)}
		m, sent, done := message(t, Restore(want))
		if m.TableFile != (n*extentBytes > maxInline) {
			t.Errorf("%d extents: in a file: %v", n, m.TableFile)
		}
		got, err := ReadRestore(m, sent)
		if err != nil || !slices.Equal(got.Memory, want.Memory) {
			t.Errorf("%d extents: others arrived, %v", n, err)
		}
		done()
	}
}

// A VMM accepts a table from a file only if the file cannot change meanwhile.
func TestATableMustBeSealed(t *testing.T) {
	m := Message{TableFile: true}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := openTable(m, []*os.File{plain}); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("got %v", err)
	}
	if _, _, err := openTable(m, nil); err == nil {
		t.Error("a table without its file was read")
	}
	if _, _, err := openTable(Message{Table: make([]byte, extentBytes+1)}, nil); err == nil {
		t.Error("half an extent was read")
	}
	if f, err := sealed(make([]byte, maxTable+1)); err == nil {
		f.Close()
		t.Error("an endless table was made")
	}
}

func FuzzTable(f *testing.F) {
	f.Add(appendExtent(nil, extent.Extent{Length: 4096}, 0), 1)
	f.Add([]byte("short"), 2)
	f.Add(make([]byte, 2*extentBytes), -1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		table, _, err := openTable(Message{Table: b}, nil)
		if err != nil {
			return
		}
		a := arrival{table: table}
		list := a.extents(n)
		if a.err != nil {
			return
		}
		var back []byte
		for _, s := range list {
			back = appendExtent(back, s, 0) // an extent with a file is refused, since there is none
		}
		if string(back) != string(b[:n*extentBytes]) {
			t.Errorf("%d extents are others when they are written again", n)
		}
	})
}
