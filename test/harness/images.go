package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// PythonImage puts the image of the fixtures into a daemon's store.
func PythonImage(t testing.TB, store string) error {
	return pythonImage(t, store, "py.")
}

// PythonImageOf is PythonImage for the image that a release such as "0.1.0" built.
func PythonImageOf(t testing.TB, store, release string) error {
	return pythonImage(t, store, release+"-py.")
}

func pythonImage(t testing.TB, store, prefix string) error {
	dir := filepath.Join(store, "python-numpy")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{image.MetadataFile, image.KernelFile, image.InitrdFile, image.RootFile,
		image.UpperFile} {
		if err := Link(kvmtest.Fixture(t, prefix+name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// SmallImage holds the paths of an image's own files, in place of the fixtures. Without an upper
// disk, the guest's writes stay in memory.
type SmallImage struct {
	Kernel, Initrd, Root, Upper string
	// Start is the command line of the image's service. Ready is the condition for its readiness.
	Start string
	Ready *image.Ready
}

// PutSmallImage puts the small image with busybox into a store under the given name. Its digests
// are made up: only an import and a build check them.
func PutSmallImage(t testing.TB, store, name string, f SmallImage) error {
	dir := filepath.Join(store, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	m := image.Metadata{
		FormatVersion: image.FormatVersion, Name: name, Suite: "bookworm", Files: map[string]image.FileSum{},
		Kernel: image.KernelInfo{Release: "6", Package: "linux", Version: "6"},
		Defaults: image.Defaults{MemoryMiB: 128, VCPUs: 1, User: "root", Workdir: "/", Start: f.Start,
			Ready: f.Ready},
	}
	if f.Upper != "" {
		m.Defaults.DiskMiB = 1024 // the file has the real size
	}
	for _, file := range []struct{ name, given, fixture string }{
		{image.KernelFile, f.Kernel, "vmlinux"}, {image.InitrdFile, f.Initrd, "agent.cpio"}, {image.RootFile, f.Root, "root.erofs"}, {image.UpperFile, f.Upper, ""},
	} {
		from := file.given
		if from == "" && file.fixture == "" {
			continue
		}
		if from == "" {
			from = kvmtest.Fixture(t, file.fixture)
		}
		st, err := os.Stat(from)
		if err != nil {
			return err
		}
		if err := Link(from, filepath.Join(dir, file.name)); err != nil {
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
