package image

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/store/layer"
)

func TestDiskSizes(t *testing.T) {
	for text, want := range map[string]int{"": 4096, "none": 0, "64MiB": 64, "512MiB": 512, "4GiB": 4096, "1TiB": 1 << 20, "1024GiB": 1 << 20} {
		if got, err := parseDisk(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"63MiB", "2TiB", "4G", "4 GiB", "-1GiB", "0GiB", "9999999TiB", "1.5GiB", "None", "4096"} {
		if got, err := parseDisk(text); err == nil {
			t.Errorf("%q was taken as %d MiB", text, got)
		}
	}
}

func TestARecipesDisk(t *testing.T) {
	if r := parse(t, smallRecipe+"disk: 8GiB\n"); r.diskMiB != 8<<10 {
		t.Errorf("got %d MiB", r.diskMiB)
	}
	if r := parse(t, smallRecipe+"disk: none\n"); r.diskMiB != 0 {
		t.Errorf("got %d MiB", r.diskMiB)
	}
	_, err := ParseRecipe("recipe.yaml", []byte(smallRecipe+"disk: 4G\n"))
	if err == nil || !strings.Contains(err.Error(), "recipe.yaml:5:") || !strings.Contains(err.Error(), "like 4GiB") {
		t.Errorf("got %v", err)
	}
}

// The real tool creates a valid and small file system, with the same bytes each time.
func TestUpperIsReproducible(t *testing.T) {
	if err := debtool.Look("mke2fs", "e2fsprogs"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	const size = 4 << 30
	var made [2][]byte
	for i := range made {
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := makeUpper(context.Background(), debtool.Run, path, size, uuid(strings.Repeat("0123456789abcdef", 4))); err != nil {
			t.Fatal(err)
		}
		var err error
		if made[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two runs made different bytes")
	}
	if len(made[0]) > 1<<20 {
		t.Errorf("an empty file system takes %d bytes", len(made[0]))
	}
	checkUpper(t, filepath.Join(dir, "a"), size)
}

// checkUpper reads a file system through its layer and runs e2fsck.
func checkUpper(t *testing.T, path string, want int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := layer.Open(f)
	if err != nil || l.Size != want || l.Kind != layer.Disk || l.RunCount > maxUpperRuns {
		t.Fatalf("got %+v, %v", l, err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(want); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Extents() {
		b := make([]byte, r.Length)
		if _, err := f.ReadAt(b, r.FileOffset); err != nil {
			t.Fatal(err)
		}
		if _, err := plain.WriteAt(b, r.Offset); err != nil {
			t.Fatal(err)
		}
	}
	// s_errors of the superblock: 2 is EXT4_ERRORS_RO.
	onError := make([]byte, 1)
	if _, err := plain.ReadAt(onError, 1024+0x3c); err != nil || onError[0] != 2 {
		t.Errorf("at an error the file system does %d, want to become read-only (%v)", onError[0], err)
	}
	if _, err := debtool.Run(context.Background(), debtool.Command{Args: []string{"e2fsck", "-f", "-n", plain.Name()}, Package: "e2fsprogs"}); err != nil {
		t.Error(err)
	}
}
