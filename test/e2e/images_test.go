package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// imageFiles holds the paths of an image's own files, in place of the fixtures.
type imageFiles struct{ kernel, initrd, root string }

// putImage puts the small image with busybox into a store.
func putImage(t *testing.T, store, name string, f imageFiles) error {
	return harness.PutSmallImage(t, store, name, harness.SmallImage{Kernel: f.kernel, Initrd: f.initrd, Root: f.root})
}

// badImage calls putImage for one test.
func (d *daemon) badImage(name string, f imageFiles) {
	d.t.Helper()
	if err := putImage(d.t, d.images(), name, f); err != nil {
		d.t.Fatal(err)
	}
	dir := filepath.Join(d.images(), name)
	d.t.Cleanup(func() { os.RemoveAll(dir) })
}

// file writes a file for one test.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(from, to string) error { return harness.Link(from, to) }
