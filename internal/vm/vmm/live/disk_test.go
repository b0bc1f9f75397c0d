package live

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func diskFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	checkOK(t, os.WriteFile(path, content, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	checkOK(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestADiskIsClosedOnce(t *testing.T) {
	base, own := diskFile(t, []byte{1}), diskFile(t, nil)
	vmm.Disk{Overlay: own, Base: []extent.Extent{{File: base}, {File: base}}}.Close()
	for _, f := range []*os.File{base, own} {
		if f.Close() == nil {
			t.Errorf("%s was left open", f.Name())
		}
	}
}

// TestSiblingsHaveDisksOfTheirOwn forks two guests from one disk. Each sees its own flushed writes
// and not its sibling's, and both see the parent's.
func TestSiblingsHaveDisksOfTheirOwn(t *testing.T) {
	kvmtest.Require(t)
	content := randomBytes(guestDiskSize, 7)
	disk := func(base *os.File) (vmm.Disk, *os.File) {
		own := diskFile(t, nil)
		b, err := os.Open(base.Name())
		checkOK(t, err)
		f, err := os.OpenFile(own.Name(), os.O_RDWR, 0)
		checkOK(t, err)
		return vmm.Disk{Overlay: f, Size: guestDiskSize, Base: []extent.Extent{{File: b, Length: guestDiskSize}}}, own
	}
	base := diskFile(t, content)
	first, _ := disk(base)
	parent := bootServe(t, vmspec.Shape{MemoryMiB: 128, VCPUs: 1, Disks: 1}, nil, first)
	const fromParent, fromChild, n = 8192, 1<<20 + 512, 10_000
	parent.ask(t, "disk-write /dev/vda %d %d", fromParent, n)
	s := parent.save()
	flat := diskFile(t, nil)
	if _, err := parent.SaveDisks([]*os.File{flat}); err != nil {
		t.Fatal(err)
	}
	copy(content[fromParent:], randomBytes(n, fromParent))
	if got, err := os.ReadFile(flat.Name()); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("the saved disk is not what the parent saw (%v)", err)
	}

	a, ownA := disk(flat)
	b, ownB := disk(flat)
	one, two := s.restoreServe(t, parent, 101, [16]byte{1}, a), s.restoreServe(t, parent, 102, [16]byte{2}, b)
	one.ask(t, "disk-write /dev/vda %d %d", fromChild, n)
	changed := bytes.Clone(content)
	copy(changed[fromChild:], randomBytes(n, fromChild))
	for _, c := range []struct {
		who  string
		v    *serveVM
		want []byte
	}{{"the writer", one, changed}, {"its sibling", two, content}} {
		c.v.ask(t, "drop-caches")
		if got, want := c.v.ask(t, "disk-digest /dev/vda"), digestLine(c.want); got != want {
			t.Errorf("%s reads %s, want %s", c.who, got, want)
		}
	}
	if st, err := ownB.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("the sibling that wrote nothing has a file of %d bytes (%v)", st.Size(), err)
	}
	// Flushed: the file has it, without the process.
	again, err := overlay.Open(ownA, guestDiskSize, []extent.Extent{{File: flat, Length: guestDiskSize}})
	checkOK(t, err)
	got := make([]byte, guestDiskSize)
	if _, err := again.ReadAt(got, 0); err != nil || !bytes.Equal(got, changed) {
		t.Errorf("the overlay file does not hold what was flushed (%v)", err)
	}
}

func init() {
	guestCommands["drop-caches"] = func([]string) (string, error) {
		unix.Sync()
		if err := os.MkdirAll("/proc", 0o755); err != nil {
			return "", err
		}
		if _, err := os.Stat("/proc/sys"); err != nil {
			if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
				return "", fmt.Errorf("mount proc: %w", err)
			}
		}
		return "", os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
	}
}
