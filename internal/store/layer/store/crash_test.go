package store

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/forkd/forkd/internal/store/layer"
)

const (
	crashDir = "FORKD_LAYER_CRASH_DIR" // makes the test binary a child that runs scenario
	crashAt  = "FORKD_LAYER_CRASH_AT"  // and kills itself before the step with this number
)

// scenario executes every step that changes a store.
func scenario(s *Store) error {
	base, err := write(s, layer.ID{}, 1, true)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := s.Pin("parent", base.ID); err != nil {
		return err
	}
	diff, err := write(s, base.View, 2, false)
	if err != nil {
		return err
	}
	defer diff.Close()
	if err := s.Pin("child", base.ID, diff.ID); err != nil {
		return err
	}
	if err := s.Hash(context.Background(), diff.ID, nil); err != nil {
		return err
	}
	if err := s.Unpin("parent"); err != nil {
		return err
	}
	flat, err := s.Compact(context.Background(), []*layer.Layer{base.Layer, diff.Layer}, 0, 2, 0, nil)
	if err != nil {
		return err
	}
	defer flat.Close()
	if err := s.Pin("child", flat.ID); err != nil {
		return err
	}
	if err := errors.Join(base.Close(), diff.Close()); err != nil {
		return err
	}
	r, err := s.GC(false)
	if err == nil && len(r.Layers) < 2 { // more if an earlier run left some
		err = fmt.Errorf("collected %+v, want base and diff", r)
	}
	return err
}

// crashChild runs in the child. It exits with 0 if it survived.
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
	s, err := Open(dir, Options{})
	if err == nil {
		err = scenario(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func TestAStoreSurvivesAKillAtEachStep(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	for n := 1; ; n++ {
		dir := t.TempDir()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if n < 30 {
				t.Errorf("the scenario has %d steps only", n-1)
			}
			return
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v: %s", n, err, out)
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) { checkWhole(t, open(t, dir)) })
	}
}

// checkWhole checks that all listed and pinned layers are whole, and that a collection leaves only the pinned
// ones.
func checkWhole(t *testing.T, s *Store) {
	t.Helper()
	v, err := s.Verify(t.Context(), nil)
	if err != nil || len(v.Damaged) != 0 || v.Layers != len(listed(t, s)) {
		t.Errorf("verify: %+v, %v", v, err)
	}
	collect(t, s)
	pins, err := s.Pins()
	must(t, err)
	var held []layer.ID
	for _, ids := range pins {
		held = append(held, ids...)
	}
	held = slices.Compact(sorted(held...))
	if got := listed(t, s); !slices.Equal(got, held) {
		t.Errorf("layers %v, held are %v", got, held)
	}
	if left, _ := filepath.Glob(s.folder.path(tempDir, "*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	sums, _ := filepath.Glob(s.folder.path(layersDir, "*"+digestsSuffix))
	if len(sums) > len(held) {
		t.Errorf("digests without a layer: %v", sums)
	}
	if err := scenario(s); err != nil {
		t.Errorf("life does not go on: %v", err)
	}
}

// After an error at any step, all files are closed, only whole layers are listed, and tmp has no partial files.
func TestAStoreSurvivesAnErrorAtEachStep(t *testing.T) {
	var steps []string
	hook(t, func(step string) error { steps = append(steps, step); return nil })
	must(t, scenario(open(t, t.TempDir())))
	for n, step := range slices.Clone(steps) {
		t.Run(fmt.Sprint(n, " ", step), func(t *testing.T) {
			s, i := open(t, t.TempDir()), 0
			hook(t, func(string) error {
				if i++; i == n+1 {
					return fmt.Errorf("%s: %w", step, unix.ENOSPC)
				}
				return nil
			})
			err := scenario(s)
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("got %v", err)
			}
			writes := !strings.HasPrefix(step, "gc.") && !strings.HasPrefix(step, "unpin.")
			if writes && !errors.Is(err, storeerr.ErrNoSpace) {
				t.Errorf("got %v, want no space", err)
			}
			if left, _ := filepath.Glob(s.folder.path(tempDir, "*")); len(left) != 0 && writes {
				t.Errorf("left over: %v", left)
			}
			if len(s.open) != 0 {
				t.Errorf("still open: %v", s.open)
			}
			hook(t, func(string) error { return nil })
			checkWhole(t, s)
		})
	}
}

// The order of the steps: a file is synced before it gets its name, and the directory after that.
func TestTheOrderOfSteps(t *testing.T) {
	var steps []string
	hook(t, func(step string) error { steps = append(steps, step); return nil })
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, true)
	must(t, s.Pin("a", h.ID))
	must(t, s.Unpin("a"))
	must(t, h.Close())
	_, err := s.GC(false)
	must(t, err)
	want := []string{
		"create", "write.data", "write.index", "write.header", "write.sync", "commit.rename", "commit.sync", "temp.write", "temp.sync", "hash.rename", "hash.sync",
		"temp.write", "temp.sync", "pin.rename", "pin.sync", "unpin.remove", "unpin.sync",
		"gc.rename", "gc.rename", "gc.remove", "gc.remove",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
}
