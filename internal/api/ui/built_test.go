package ui

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The checked-in files are those that the sources of the page give.
func TestTheBuiltFilesAreCurrent(t *testing.T) {
	const sources = "../../../ui"
	if _, err := os.Stat(filepath.Join(sources, "node_modules", "vite")); err != nil {
		t.Skipf("%s/node_modules is missing: scripts/ui.sh makes it", sources)
	}
	dir := t.TempDir()
	cmd := exec.Command("npx", "vite", "build", "--logLevel", "error", "--outDir", dir, "--emptyOutDir")
	cmd.Dir = sources
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, f := range files() {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || !bytes.Equal(b, f.content) {
			t.Errorf("%s is not what the sources give (%v): make ui", name, err)
		}
	}
}
