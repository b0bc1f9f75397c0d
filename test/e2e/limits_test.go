package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// smallDisk mounts a file system of a few MiB. It does not use t.TempDir, which a daemon of another
// user cannot read.
func smallDisk(t *testing.T, mib int) (dir string) {
	t.Helper()
	around, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(around) })
	dir = filepath.Join(around, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Fatalf("mount a small file system (it needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("something still uses the file system: %v", err)
		}
	})
	return dir
}

// beside makes a folder next to the store's data, where the daemon's user can read.
func beside(store string) (string, error) {
	return os.MkdirTemp(filepath.Dir(filepath.Dir(store)), "aside-")
}

func TestTheDiskIsFull(t *testing.T) {
	t.Parallel()
	kvmtest.Require(t)
	kvmtest.Drawn(t)
	mount := smallDisk(t, 24)
	d := secondDaemon(t)
	d.Data, d.Flags = mount, []string{"--disk-reserve", "0"}
	if err := linkedImage(t, d.images(), "box"); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.unchanged()
	d.sub("while saving", func(t *testing.T) {
		free := freeBytes(t, mount)
		_, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "big", Image: "box"}, nil)
		wantError(t, err, api.CodeNoSpace, "create snapshot big", "no space left on device", "store_full")
		if now := freeBytes(t, mount); now < free-receipts {
			t.Errorf("%d bytes are free, before it was %d", now, free)
		}
		if code, _, errs := d.cli("snapshot", "info", "big"); code != 3 {
			t.Errorf("the CLI's exit code is %d, want 3: %s", code, errs)
		}
	})
	d.sub("while an image comes", func(t *testing.T) {
		free := freeBytes(t, mount)
		wantError(t, d.importPython(t), api.CodeNoSpace, "python-numpy", "no space left on device")
		if now := freeBytes(t, mount); now < free-receipts {
			t.Errorf("%d bytes are free, before it was %d", now, free)
		}
		images, err := d.c.ListImages(t.Context())
		if err != nil || len(images) != 1 || images[0].Name != "box" {
			t.Errorf("got %+v, %v", images, err)
		}
	})
	d.sub("into the reserve", func(t *testing.T) {
		d.end(syscall.SIGTERM)
		d.Flags = []string{"--disk-reserve", "24"}
		d.start()
		_, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "big", Image: "box"}, nil)
		wantError(t, err, api.CodeNoSpace, "create snapshot big", "MiB free including the reserve of 24 MiB", "store_full")
		wantError(t, d.importPython(t), api.CodeNoSpace, "import image python-numpy", "the reserve of 24 MiB", "store_full")
	})
}

// importPython imports the image with Python, and returns the error.
func (d *daemon) importPython(t *testing.T) error {
	t.Helper()
	img, err := image.OpenDir(pythonDir(t))
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(img.Export(t.Context(), w, nil))
	}()
	_, err = d.c.ImportImage(t.Context(), "python-numpy", "", r)
	r.Close()
	<-done
	return err
}

// receipts is space for the receipts of failures, which are written meanwhile.
const receipts = 64 << 10

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// linkedImage is putImage with the kernel and the initrd in another folder.
func linkedImage(t *testing.T, store, name string) error {
	aside, err := beside(store)
	if err != nil {
		return err
	}
	if err := putImage(t, aside, name, imageFiles{}); err != nil {
		return err
	}
	dir := filepath.Join(store, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []string{image.KernelFile, image.InitrdFile} {
		if err := os.Symlink(filepath.Join(aside, name, file), filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	for _, file := range []string{image.RootFile, image.MetadataFile} {
		if err := link(filepath.Join(aside, name, file), filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

func pythonDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := harness.PythonImage(t, dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "python-numpy")
}

// With memory for only some of the children, no child is made, and running sandboxes continue.
func TestNotEnoughMemory(t *testing.T) {
	first := shared(t)
	d := secondDaemon(t)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	const room, few, n = 60, 3, 12 // MiB; the daemon estimates 8 for a child
	d.Flags = []string{"--memory-reserve", fmt.Sprint(availableMiB(t) - room)}
	d.start()
	d.unchanged()
	count := few
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &count})
	if len(res.OK()) != few {
		t.Errorf("of %d, %d were made", few, len(res.OK()))
	}
	count = n
	_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &count})
	wantError(t, err, api.CodeNoMemory, "not enough memory: 96 MiB needed for 12 VMs of 8 MiB each, ", "host_memory")
	d.alive(res.OK()...)
	if got := d.runningCount(); got != len(res.OK()) {
		t.Errorf("%d are listed, %d were made", got, len(res.OK()))
	}
	d.sub("for a single one", func(t *testing.T) {
		d.end(syscall.SIGTERM)
		d.Flags = []string{"--memory-reserve", "1000000"}
		d.start()
		_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &count})
		wantError(t, err, api.CodeNoMemory, "not enough memory: 96 MiB needed for 12 VMs of 8 MiB each, 0 MiB available",
			"host_memory")
		if code, _, errs := d.cli("fork", parentTag); code != 9 || !strings.Contains(errs, "not enough memory") {
			t.Errorf("the CLI's exit code is %d, want 9: %s", code, errs)
		}
		d.alive(res.OK()...) // running sandboxes continue
	})
}

// cloneStore copies another daemon's parent to a daemon before its start.
func cloneStore(from, to *daemon) error {
	if err := cloneSnapshot(filepath.Join(from.store(), parentTag), filepath.Join(to.store(), parentTag), parentTag); err != nil {
		return err
	}
	pin, err := os.ReadFile(filepath.Join(from.Data, "layers", "pins", "snapshot."+parentTag))
	if err != nil {
		return err
	}
	for _, dir := range []string{"layers", "pins"} {
		source, target := filepath.Join(from.Data, "layers", dir), filepath.Join(to.Data, "layers", dir)
		if err := os.MkdirAll(target, 0o700); err != nil {
			return err
		}
		for _, name := range names(source) {
			if dir == "pins" && name != "snapshot."+parentTag {
				continue
			}
			// Layers just deleted by another test may still be there.
			if id, _, _ := strings.Cut(name, "."); dir == "layers" && !bytes.Contains(pin, []byte(id)) {
				continue
			}
			if err := link(filepath.Join(source, name), filepath.Join(target, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func availableMiB(t *testing.T) (mib int) {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "MemAvailable:")
	if _, err := fmt.Sscanf(rest, "%d kB", &mib); err != nil {
		t.Fatal(err)
	}
	return mib >> 10
}
