package live

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func rebaseFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	checkOK(t, err)
	_, err = f.Write(content)
	checkOK(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func isClosed(f *os.File) bool {
	_, err := f.Stat()
	return errors.Is(err, os.ErrClosed)
}

// A disk that switches to another overlay file keeps its written content, and the switch is
// counted. After a rebase the machine has released all files except the current overlay file and
// the new base.
func TestSwitchOverlayAndRebase(t *testing.T) {
	const size = 8 * overlay.BlockSize
	base, own := rebaseFile(t, bytes.Repeat([]byte{1}, size)), rebaseFile(t, nil)
	m := newMachine(Config{})
	m.state = vmm.StateRunning
	plain := vmm.Disk{File: rebaseFile(t, []byte("root")), ReadOnly: true}
	m.disks.all = []vmm.Disk{plain, {Overlay: own, Size: size, Base: []extent.Extent{{File: base, Length: size}}}}
	_, err := m.disks.open(1, m.disks.all[1])
	checkOK(t, err)
	disk := m.disks.overlays[0]
	write := func(at int64, b byte) {
		_, err := disk.WriteAt([]byte{b}, at)
		checkOK(t, err)
	}
	want := bytes.Repeat([]byte{1}, size)
	check := func(when string) {
		t.Helper()
		got := make([]byte, size)
		if _, err := disk.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s the disk reads otherwise (%v)", when, err)
		}
	}
	owns := []*os.File{own}
	for i := range 3 {
		write(int64(i)*5000, byte(10+i))
		want[i*5000] = byte(10 + i)
		next := rebaseFile(t, nil)
		checkOK(t, m.disks.switchOverlay(disk, next))
		owns = append(owns, next)
		check("after a switch")
	}
	if got := m.disks.generations(); !slices.Equal(got, []int{3}) {
		t.Errorf("it counts %v", got)
	}
	under := func() [][]extent.Extent {
		return [][]extent.Extent{{{File: rebaseFile(t, want), Length: size}}}
	}
	early := under()
	if err := m.Rebase(early); err == nil || !isClosed(early[0][0].File) {
		t.Errorf("rebased although maps are not saved: %v", err)
	}
	checkOK(t, m.disks.saveMaps())
	if _, err := overlay.Open(owns[2], size, nil); err != nil {
		t.Errorf("a frozen file is not readable: %v", err)
	}
	for name, bad := range map[string][][]extent.Extent{
		"none": nil, "too many": append(under(), under()...), "beyond its end": {{{File: rebaseFile(t, nil), Length: size}}},
	} {
		if err := m.Rebase(bad); err == nil {
			t.Errorf("%s: taken", name)
		}
		for _, b := range bad {
			if !isClosed(b[0].File) {
				t.Errorf("%s: a file is left open", name)
			}
		}
	}
	check("after refused bases")
	next := under()
	checkOK(t, m.Rebase(next))
	check("after the rebase")
	for i, f := range append(owns, base, next[0][0].File, plain.File) {
		if open := i >= 3 && f != base; isClosed(f) == open {
			t.Errorf("file %d is closed: %v", i, isClosed(f))
		}
	}
	m.state = vmm.StateShell
	late := under()
	if err := m.Rebase(late); !errors.Is(err, vmm.ErrState) || !isClosed(late[0][0].File) {
		t.Errorf("a shell is rebased: %v", err)
	}
}
