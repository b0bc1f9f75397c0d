package durable

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A copy has the same bytes and holes, and is independent afterwards.
func TestACopyOfAFile(t *testing.T) {
	dir := t.TempDir()
	src, err := os.Create(filepath.Join(dir, "src"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	const size = 40<<20 + 123
	for _, at := range []int64{0, 8 << 20, size - 5} {
		if _, err := src.WriteAt([]byte("words"), at); err != nil {
			t.Fatal(err)
		}
	}
	dst, err := os.Create(filepath.Join(dir, "dst"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := CopyFile(t.Context(), dst, src); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(src.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.WriteAt([]byte("other"), 8<<20); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dst.Name())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d that are the same", len(got), err, len(want))
	}
	st, err := dst.Stat()
	if err != nil || st.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
		t.Errorf("it takes %d blocks, %v: its holes are filled", st.Sys().(*syscall.Stat_t).Blocks, err)
	}
}

func TestACopyThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	dst, err := os.Create(filepath.Join(dir, "dst"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := CopyFile(t.Context(), dst, folder); err == nil {
		t.Error("a folder was copied")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no more")
	cancel(why)
	src := filepath.Join(dir, "src")
	if err := os.WriteFile(src, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := copySparse(ctx, dst, f, 5); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
