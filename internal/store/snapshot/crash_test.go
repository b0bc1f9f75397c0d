package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

const (
	crashDir = "FORKD_SNAPSHOT_CRASH_DIR" // makes the test binary a child that runs scenario
	crashAt  = "FORKD_SNAPSHOT_CRASH_AT"  // and kills itself before the step with this number
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		os.Exit(crashChild(dir))
	}
	os.Exit(m.Run())
}

func crashChild(dir string) int {
	stop, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return 2
	}
	n := 0
	failpoint.Set(func(failpoint.Step) error {
		if n++; n == stop {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	})
	s, err := openBoth(dir)
	if err == nil {
		err = scenario(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func openBoth(dir string) (*Store, error) {
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	if err != nil {
		return nil, err
	}
	return OpenStore(filepath.Join(dir, "snapshots"), layers)
}

// Content of page 3 in the scenario's snapshots.
var scenarioPages = map[string]byte{"a": 'a', "b": 'b', "renamed": 'b', "flat": 'b'}

// scenarioLabels are the labels of the scenario's snapshots, if they have any.
var scenarioLabels = map[string]string{"job": "7"}

// scenario creates a snapshot, branches it, deletes the first one, compacts the second one and deletes it: all
// steps that change the stores.
func scenario(s *Store) error {
	if err := makeBase(s, "a"); err != nil {
		return err
	}
	if err := makeDiff(s, "a", "b", false); err != nil {
		return err
	}
	if err := s.Hash(context.Background(), "b", nil); err != nil {
		return err
	}
	for _, set := range []map[string]string{scenarioLabels, nil, scenarioLabels} {
		if err := s.SetLabels("b", func(map[string]string) (map[string]string, error) { return set, nil }); err != nil {
			return err
		}
	}
	if err := Rename(s, "b", "renamed"); err != nil {
		return err
	}
	if err := Rename(s, "renamed", "b"); err != nil {
		return err
	}
	if err := s.Delete("a"); err != nil {
		return err
	}
	if err := makeDiff(s, "b", "flat", true); err != nil {
		return err
	}
	if err := s.Delete("b"); err != nil {
		return err
	}
	_, err := s.layers.GC(false)
	return err
}

func scenarioManifest(memory Chain) *Manifest {
	return &Manifest{
		Shape: vmspec.Shape{MemoryMiB: testMemory >> 20, VCPUs: 1, Disks: 1}, Memory: memory,
		State: State{File: StateFile}, Disks: []Disk{{File: DiskFile(0), ReadOnly: true}},
	}
}

func finishDraft(d *Draft, memory Chain) error {
	for _, name := range []string{StateFile, DiskFile(0)} {
		f, err := d.File(name)
		if err != nil {
			return err
		}
		if _, err := f.WriteString("the " + name); err != nil {
			return err
		}
	}
	return d.Commit(scenarioManifest(memory))
}

func makeBase(s *Store, tag string) error {
	d, err := s.Create(tag)
	if err != nil {
		return err
	}
	defer d.Discard()
	b, err := d.Base(layer.Memory, testMemory)
	if err != nil {
		return err
	}
	defer b.Discard()
	if _, err := b.File().WriteAt(bytes.Repeat([]byte{'a'}, 10*layer.BlockSize), layer.ContentOffset); err != nil {
		return err
	}
	chain, err := d.Place(b)
	if err != nil {
		return err
	}
	if err := d.Label(scenarioLabels); err != nil {
		return err
	}
	return finishDraft(d, chain)
}

func makeDiff(s *Store, from, tag string, flat bool) error {
	files, err := s.Open(from)
	if err != nil {
		return err
	}
	defer files.Close()
	d, err := s.Create(tag)
	if err != nil {
		return err
	}
	defer d.Discard()
	scratch, err := s.layers.Scratch()
	if err != nil {
		return err
	}
	defer scratch.Close()
	at := int64(3 * layer.BlockSize)
	if _, err := scratch.WriteAt(bytes.Repeat([]byte{'b'}, layer.BlockSize), at); err != nil {
		return err
	}
	k := d.Stack(layer.Memory, testMemory, MemoryLimits, files.Memory.Layers()...)
	if err := k.Diff(context.Background(), []extent.Extent{{File: scratch, FileOffset: at, Offset: at, Length: layer.BlockSize}}); err != nil {
		return err
	}
	if flat {
		if err := k.Flatten(context.Background(), nil); err != nil {
			return err
		}
	}
	return finishDraft(d, k.Chain())
}

func TestTheStoresSurviveAKillAtEachStep(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	for n := 1; ; n++ {
		dir := t.TempDir()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if n < 50 {
				t.Errorf("the scenario has %d steps only", n-1)
			}
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v: %s", n, err, out)
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) { checkWhole(t, dir) })
	}
}

// After an error at any step, the operation is either undone or complete.
func TestTheStoresSurviveAnErrorAtEachStep(t *testing.T) {
	var steps []string
	hookAll(t, func(step string) error { steps = append(steps, step); return nil })
	must(t, scenario(open(t)))
	for n, step := range slices.Clone(steps) {
		t.Run(fmt.Sprint(n, " ", step), func(t *testing.T) {
			s, i := open(t), 0
			hookAll(t, func(string) error {
				if i++; i == n+1 {
					return fmt.Errorf("%s: %w", step, unix.EIO)
				}
				return nil
			})
			if err := scenario(s); !errors.Is(err, unix.EIO) {
				t.Errorf("got %v", err)
			}
			hookAll(t, func(string) error { return nil })
			if left, _ := filepath.Glob(filepath.Join(s.dir, ".*")); len(left) != 0 {
				t.Errorf("left over without a crash: %v", left)
			}
			checkWhole(t, s.root())
		})
	}
}

// hookAll installs a hook for the steps of both stores, without their prefixes.
func hookAll(t *testing.T, hook func(step string) error) {
	t.Cleanup(failpoint.Set(func(s failpoint.Step) error {
		return hook(strings.TrimPrefix(strings.TrimPrefix(string(s), failpoint.SnapshotPrefix), failpoint.LayerPrefix))
	}))
}

// checkWhole opens the stores like a daemon after a crash. All listed snapshots are whole, a collection keeps
// only their layers, and the stores still work.
func checkWhole(t *testing.T, dir string) {
	t.Helper()
	s := reopen(t, dir)
	_, err := s.layers.GC(false)
	must(t, err)
	entries, err := s.List()
	must(t, err)
	if err := onlyOneName(entries); err != nil {
		t.Error(err)
	}
	needed := map[layer.ID]bool{}
	var pins []string
	for _, e := range entries {
		must(t, e.Err)
		must(t, e.LabelsErr)
		if len(e.Labels) > 0 && !maps.Equal(e.Labels, scenarioLabels) || e.Tag == "a" && len(e.Labels) == 0 {
			t.Errorf("snapshot %s has the labels %v", e.Tag, e.Labels)
		}
		pins = append(pins, pinPrefix+e.Tag)
		for _, id := range e.Manifest.LayerIDs() {
			needed[id] = true
		}
		checkPage(t, s, e.Tag)
		r, err := s.Verify(t.Context(), e.Tag)
		if ready := s.HasDigests(e); ready && (err != nil || len(r.Damaged) > 0) || !ready && !errors.Is(err, storeerr.ErrNoDigests) {
			t.Errorf("before %s is hashed again (digests are there: %v): %+v, %v", e.Tag, ready, r, err)
		}
		must(t, s.Hash(t.Context(), e.Tag, nil))
		if r, err := s.Verify(t.Context(), e.Tag); err != nil || len(r.Damaged) > 0 {
			t.Errorf("verify %s: %+v, %v", e.Tag, r, err)
		}
	}
	if ids := layersOf(t, s); len(ids) != len(needed) {
		t.Errorf("%d layers, needed are %d", len(ids), len(needed))
	}
	held, err := s.layers.Pins()
	must(t, err)
	for name := range held {
		if !slices.Contains(pins, name) {
			t.Errorf("pin %s is nobody's", name)
		}
	}
	if len(held) != len(pins) {
		t.Errorf("%d pins, want %d", len(held), len(pins))
	}
	for _, pattern := range []string{"snapshots/.*", "layers/tmp/*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
	for _, e := range entries {
		must(t, s.Delete(e.Tag))
	}
	if err := scenario(s); err != nil {
		t.Errorf("life does not go on: %v", err)
	}
}

// onlyOneName returns an error if a snapshot has two tags.
func onlyOneName(entries []Entry) error {
	tags := map[string]string{}
	for _, e := range entries {
		if other := tags[e.ContentHash]; other != "" {
			return fmt.Errorf("%s and %s are one snapshot", other, e.Tag)
		}
		tags[e.ContentHash] = e.Tag
	}
	return nil
}

func checkPage(t *testing.T, s *Store, tag string) {
	t.Helper()
	files, err := s.Open(tag)
	must(t, err)
	defer files.Close()
	b := make([]byte, 1)
	for page, want := range map[int64]byte{3: scenarioPages[tag], 4: 'a', 20: 0} {
		if _, err := files.Memory.ReadAt(b, page*layer.BlockSize); err != nil || b[0] != want {
			t.Errorf("page %d of %s is %q, want %q (%v)", page, tag, b[0], want, err)
		}
	}
}

// The required order: layers before the pin, and the pin before the manifest. The pin is removed after the
// snapshot.
func TestTheOrderOfSteps(t *testing.T) {
	var steps []string
	hookAll(t, func(step string) error { steps = append(steps, step); return nil })
	s := open(t)
	must(t, makeBase(s, "a"))
	must(t, s.Delete("a"))
	order := []string{"commit.rename", "pin.rename", "manifest.write", "folder.rename", "delete.rename", "unpin.remove"}
	at := -1
	for _, want := range order {
		i := slices.Index(steps, want)
		if i <= at {
			t.Errorf("%s is step %d, behind %d: %s", want, i, at, strings.Join(steps, " "))
		}
		at = i
	}
}
