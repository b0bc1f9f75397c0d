package image

import (
	"os"
	"path/filepath"
	"testing"
)

// An entry with a file outside of its own directory is invalid.
func TestACacheEntryStaysInItsFolder(t *testing.T) {
	c, err := openCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{"root": true, "../../outside": false} {
		dir := filepath.Join(c.dir, kindRoot, "key")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			filepath.Join(dir, file):      "12345",
			filepath.Join(dir, entryFile): `{"files":{"` + file + `":{"size":5}}}`,
		} {
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, got := c.get(kindRoot, "key"); got != want {
			t.Errorf("an entry with %s: %t, want %t", file, got, want)
		}
	}
}
