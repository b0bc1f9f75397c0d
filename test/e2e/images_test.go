package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// boxFiles are an image's files that are not the fixtures': paths.
type boxFiles struct{ kernel, initrd, root string }

// boxImage is the small image with busybox.
func boxImage(t *testing.T, store, name string, f boxFiles) error {
	return harness.BoxImage(t, store, name, harness.BoxFiles{Kernel: f.kernel, Initrd: f.initrd, Root: f.root})
}

// badImage is boxImage for one test.
func (d *daemon) badImage(name string, f boxFiles) {
	d.t.Helper()
	if err := boxImage(d.t, d.images(), name, f); err != nil {
		d.t.Fatal(err)
	}
	dir := filepath.Join(d.images(), name)
	d.t.Cleanup(func() { os.RemoveAll(dir) })
}

// file writes a file of the test's own.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(from, to string) error { return harness.Link(from, to) }
