package fusefs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHas(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if Has(f) {
		t.Error("a file of a directory of the test is one of FUSE")
	}
	f.Close()
	if !Has(f) {
		t.Error("a file without an answer must count as one of FUSE")
	}
}
