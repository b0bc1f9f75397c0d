package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// operations are those that change the directory of the store, with the volumes afterwards. Before, there is one
// volume, "data", with the content "first" over a layer.
var operations = []struct {
	name  string
	do    func(s *Store) error
	after []string
}{
	{"create", func(s *Store) error { return createErr(s, "acme", "new", size) }, []string{"data", "new"}},
	{"clone", func(s *Store) error { return cloneErr(s, "data", "new") }, []string{"data", "new"}},
	{"snapshot", func(s *Store) error { _, err := s.Clone("acme", "data", "new", true); return err }, []string{"data", "new"}},
	{"remove", func(s *Store) error { return s.Remove("acme", "data") }, nil},
}

// prepared makes a store with the volume "data".
func prepared(t *testing.T) (dir string, s *Store) {
	t.Helper()
	dir = t.TempDir()
	s = open(t, dir)
	create(t, s, "acme", "data")
	v, stack := take(t, s, "data", "sb-1")
	write(t, stack.Files, "first")
	if err := s.Settle(v.ID, Stack{[]layer.ID{layerOf(t, s)}, stack.Files}); err != nil {
		t.Fatal(err)
	}
	release(t, s, v, "sb-1")
	return dir, s
}

// layerOf makes an empty layer in the layer store.
func layerOf(t *testing.T, s *Store) layer.ID {
	t.Helper()
	d, err := s.cfg.Pins.(*store.Store).Create(layer.Spec{Kind: layer.Disk, Size: size}, store.DraftOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Commit()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	return h.ID
}

// steps returns the steps of an operation.
func steps(t *testing.T, do func(*Store) error) (out []failpoint.Step) {
	t.Helper()
	_, s := prepared(t)
	defer failpoint.Set(func(s failpoint.Step) error {
		if strings.HasPrefix(string(s), failpoint.VolumePrefix) {
			out = append(out, s)
		}
		return nil
	})()
	if err := do(s); err != nil {
		t.Fatal(err)
	}
	if len(out) < 2 {
		t.Fatalf("the operation has the steps %q", out)
	}
	return out
}

// atStep makes the operation call f at one step.
func atStep(step failpoint.Step, f func() error) (unset func()) {
	done := false
	return failpoint.Set(func(s failpoint.Step) error {
		if s != step || done {
			return nil
		}
		done = true
		return f()
	})
}

// A kill leaves each volume as before or after the operation, and the next daemon removes the rest. The next daemon
// has the files of the instant.
func TestKillsOfOperations(t *testing.T) {
	for _, op := range operations {
		for _, step := range steps(t, op.do) {
			t.Run(op.name+" at "+string(step), func(t *testing.T) {
				dir, s := prepared(t)
				killed := filepath.Join(t.TempDir(), "copy")
				unset := atStep(step, func() error { return os.CopyFS(killed, os.DirFS(dir)) })
				err := op.do(s)
				unset()
				if err != nil {
					t.Fatal(err)
				}
				wantWhole(t, killed, op.after)
			})
		}
	}
}

// A full disk at a step leaves the volumes as before, also for the next daemon, and the operation succeeds when there
// is room. A removal has happened once its folder has another name.
func TestAFullDiskDuringOperations(t *testing.T) {
	for _, op := range operations {
		for _, step := range steps(t, op.do) {
			t.Run(op.name+" at "+string(step), func(t *testing.T) {
				dir, s := prepared(t)
				unset := atStep(step, func() error { return syscall.ENOSPC })
				err := op.do(s)
				unset()
				removed := strings.Contains(string(step), "remove.") && !strings.HasSuffix(string(step), ".rename")
				if !removed && !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("it returned %v", err)
				}
				next := filepath.Join(t.TempDir(), "copy")
				if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				if names := wantWhole(t, next, op.after); !removed && !slices.Equal(names, []string{"data"}) {
					t.Errorf("the next daemon lists %q", names)
				}
				if removed {
					return
				}
				if err := op.do(s); err != nil {
					t.Errorf("again: %v", err)
				}
			})
		}
	}
}

// wantWhole opens the store and checks that it has the volumes of before or after an operation, with their content
// and pins, and no other files.
func wantWhole(t *testing.T, dir string, after []string) (names []string) {
	t.Helper()
	s := open(t, dir)
	s.Rest()
	var ids []string
	for _, v := range s.List("acme") {
		names, ids = append(names, v.Name), append(ids, v.ID)
		if v.Name == "new" && v.From == "" {
			continue // it is empty
		}
		_, stack, err := s.Share("acme", v.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, stack.Files, 5); got != "first" {
			t.Errorf("%s has %q", v.Name, got)
		}
	}
	if !slices.Equal(names, []string{"data"}) && !slices.Equal(names, after) {
		t.Errorf("the volumes are %q", names)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		if !slices.Contains(ids, en.Name()) {
			t.Errorf("left over: %s", en.Name())
		}
	}
	pins, err := s.cfg.Pins.Pins()
	if err != nil {
		t.Fatal(err)
	}
	for name := range pins {
		if !slices.Contains(ids, strings.TrimPrefix(name, pinPrefix)) {
			t.Errorf("a pin is left: %s", name)
		}
	}
	for _, v := range s.all {
		if len(v.Backing) > 0 && len(pins[pinPrefix+v.ID]) == 0 {
			t.Errorf("the layers of %s are not pinned", v.Name)
		}
	}
	return names
}

// Records that cannot be written for lack of room, after a branch and at the release, cost no content: neither the next
// branch nor the next holder loses the files that the record does not name yet.
func TestAFullDiskWhileAVolumeIsHeld(t *testing.T) {
	var full []failpoint.Step
	defer failpoint.Set(func(s failpoint.Step) error {
		if slices.Contains(full, s) {
			return syscall.ENOSPC
		}
		return nil
	})()
	const settle, rest = failpoint.VolumePrefix + "settle", failpoint.VolumePrefix + "rest"
	for _, again := range []bool{false, true} { // whether the sandbox is branched again
		for _, atRelease := range [][]failpoint.Step{nil, {settle}, {settle, rest}} {
			s := open(t, t.TempDir())
			create(t, s, "acme", "data")
			v, stack := take(t, s, "data", "sb-1")
			write(t, stack.Files, "before")
			branch := func(text string) {
				t.Helper()
				f, err := s.NewTop(v.ID, nil)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				stack.Files = append(stack.Files, f.Name())
				write(t, stack.Files, text)
			}
			branch("behind")
			full = []failpoint.Step{settle}
			if err := s.Settle(v.ID, stack); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if _, err := s.NewTop(v.ID, nil); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("another branch, though the record is old: %v", err)
			}
			full = nil
			want := "behind"
			if again {
				want = "latest"
				branch(want)
			}
			full = atRelease
			noRest := slices.Contains(full, rest)
			if err := s.Release(v.ID, "sb-1"); errors.Is(err, syscall.ENOSPC) != noRest {
				t.Errorf("the release returned %v", err)
			}
			if _, _, err := s.Share("acme", "data"); noRest && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("clones of a volume whose record is old: %v", err)
			}
			if _, _, err := s.Take("acme", "data", "sb-2"); errors.Is(err, syscall.ENOSPC) != noRest {
				t.Errorf("the next holder: %v", err)
			}
			full = nil
			release(t, s, v, "sb-2")
			v, stack = take(t, s, "data", "sb-3")
			if got := read(t, stack.Files, 6); got != want {
				t.Errorf("branched again %v, no room at %q: %q, want %q", again, atRelease, got, want)
			}
			release(t, s, v, "sb-3")
		}
	}
}
