package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/image"
	"github.com/forkd/forkd/internal/kvmtest"
)

// pythonImage puts the image that the fixtures built into a daemon's store.
func pythonImage(t *testing.T, store string) error {
	dir := filepath.Join(store, "python-numpy")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{image.MetadataFile, image.KernelFile, image.InitrdFile, image.RootFile, image.UpperFile} {
		if err := link(kvmtest.Fixture(t, "py."+name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// boxFiles are an image's files that are not the fixtures': paths.
type boxFiles struct{ kernel, initrd, root string }

// boxImage puts the small image with busybox into a store, under a name of its own. The
// digests are made up: only an import and a build look at them.
func boxImage(t *testing.T, store, name string, f boxFiles) error {
	dir := filepath.Join(store, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	m := image.Metadata{
		FormatVersion: image.FormatVersion, Name: name, Suite: "bookworm", Files: map[string]image.FileSum{},
		Kernel:   image.KernelInfo{Release: "6", Package: "linux", Version: "6"},
		Defaults: image.Defaults{MemoryMiB: 128, VCPUs: 1, User: "root", Workdir: "/"},
	}
	for _, file := range []struct{ name, given, fixture string }{
		{image.KernelFile, f.kernel, "vmlinux"}, {image.InitrdFile, f.initrd, "agent.cpio"}, {image.RootFile, f.root, "root.erofs"},
	} {
		from := file.given
		if from == "" {
			from = kvmtest.Fixture(t, file.fixture)
		}
		st, err := os.Stat(from)
		if err != nil {
			return err
		}
		if err := link(from, filepath.Join(dir, file.name)); err != nil {
			return err
		}
		m.Files[file.name] = image.FileSum{Size: st.Size(), SHA256: strings.Repeat("0", 64)}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, image.MetadataFile), b, 0o644)
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
