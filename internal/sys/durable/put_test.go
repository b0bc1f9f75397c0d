package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// these returns n files with their number as content.
func these(n int) (out []File) {
	for i := range n {
		out = append(out, File{Name: fmt.Sprintf("f%02d", i), Content: []byte(fmt.Sprint(i))})
	}
	return out
}

// in returns the names in a directory.
func in(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestFilesArePutWhole(t *testing.T) {
	for _, n := range []int{0, 1, manyAtOnce - 1, manyAtOnce, 3 * manyAtOnce} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f00"), []byte("longer than what comes"), 0o644); err != nil {
				t.Fatal(err)
			}
			put, err := PutFiles(dir, ".new-", these(n))
			if put != n || err != nil {
				t.Fatalf("put %d, %v", put, err)
			}
			for _, f := range these(n) {
				path := filepath.Join(dir, f.Name)
				if b, err := ReadFile(path, 64); err != nil || string(b) != string(f.Content) {
					t.Errorf("%s has %q, %v", f.Name, b, err)
				}
				if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", f.Name, st.Mode(), err)
				}
			}
			if names := in(t, dir); len(strings.Fields(names)) != max(1, n) {
				t.Errorf("there are %s", names)
			}
		})
	}
}

// Files before the failing one exist, files after it do not.
func TestFilesAfterOneThatFailsAreNotPut(t *testing.T) {
	for _, n := range []int{4, 2 * manyAtOnce} {
		for _, c := range []struct {
			what, folder string
			want         error
		}{
			{"a folder has the name", "f02", syscall.EEXIST},
			{"a folder has the temporary name", ".new-f02", syscall.EISDIR},
		} {
			t.Run(fmt.Sprint(n, " ", c.what), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.MkdirAll(filepath.Join(dir, c.folder, "full"), 0o700); err != nil {
					t.Fatal(err)
				}
				put, err := PutFiles(dir, ".new-", these(n))
				if put != 2 || !errors.Is(err, c.want) {
					t.Errorf("put %d, %v", put, err)
				}
				names := strings.Fields(in(t, dir))
				if got := strings.Join(names, " "); got != c.folder+" f00 f01" && got != "f00 f01 "+c.folder {
					t.Errorf("there are %s", got)
				}
			})
		}
	}
}

func TestNothingIsPutIntoNoFolder(t *testing.T) {
	put, err := PutFiles(filepath.Join(t.TempDir(), "none"), ".new-", these(1))
	if put != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("put %d, %v", put, err)
	}
}

func BenchmarkPutFiles(b *testing.B) {
	for _, n := range []int{1, 7, 8, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() { // new names, like receipts
				if _, err := PutFiles(b.TempDir(), ".new-", these(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
