package forkcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsTheImagesStays(t *testing.T) {
	dir := t.TempDir()
	own, ours := filepath.Join(dir, "own"), filepath.Join(dir, "ours")
	if err := os.WriteFile(own, []byte("the image's"), 0o755); err != nil {
		t.Fatal(err)
	}
	var said []string
	log := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for range 2 { // a second boot of the same disk finds its own links
		if err := link("/run/x", ours, log); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := os.Readlink(ours); err != nil || to != "/run/x" || len(said) != 0 {
		t.Errorf("it links to %q, %v; said %q", to, err, said)
	}
	if err := link("/run/x", own, log); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(own); err != nil || string(b) != "the image's" || len(said) != 1 || !strings.Contains(said[0], own) {
		t.Errorf("the image's file is %q, %v; said %q", b, err, said)
	}
	if err := link("/run/x", filepath.Join(dir, "none", "x"), log); err == nil {
		t.Error("no error without the folder")
	}
}
