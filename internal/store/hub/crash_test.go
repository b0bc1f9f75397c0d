package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Variables of a child process of TestAKilledImport: its directory, and the step at which it kills itself.
const (
	crashDirectory = "FORKD_TEST_HUB_DIR"
	crashStep      = "FORKD_TEST_HUB_STEP"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirectory); dir != "" {
		n, _ := strconv.Atoi(os.Getenv(crashStep))
		if err := importIn(dir, n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// dying kills this process at its n-th step: a step of the stores, or a read of the stream.
type dying struct {
	r    io.Reader
	left int
}

func (d *dying) step() {
	if d.left--; d.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d *dying) Read(b []byte) (int, error) {
	d.step()
	return d.r.Read(b[:min(len(b), 64<<10)])
}

func importIn(dir string, n int) error {
	stream, err := os.Open(filepath.Join(dir, "stream"))
	if err != nil {
		return err
	}
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	if err != nil {
		return err
	}
	snapshots, err := snapshot.OpenStore(filepath.Join(dir, "snapshots"), layers)
	if err != nil {
		return err
	}
	d := &dying{r: stream, left: n}
	failpoint.Set(func(failpoint.Step) error { d.step(); return nil })
	in, err := Open(d, nil)
	if err != nil {
		return err
	}
	state, err := in.State()
	if err != nil {
		return err
	}
	draft, err := snapshots.Create("two")
	if err != nil {
		return err
	}
	defer draft.Discard()
	if err := in.Receive(context.Background(), draft, state); err != nil {
		return err
	}
	return draft.Commit(in.Manifest)
}

// A process is killed at each step of an import. The next one finds the whole snapshot or none, and a retry succeeds.
func TestAKilledImport(t *testing.T) {
	a := newHost(t, store.Options{})
	a.write(t, "one", noise(2, 300<<10))
	raw, err := a.export(t, "one")
	must(t, err)
	good := stream(t, layout(t, raw), false)
	self, err := os.Executable()
	must(t, err)
	whole, killed := 0, 0
	for n := 1; whole == 0; n++ {
		b := newHost(t, store.Options{})
		must(t, os.WriteFile(filepath.Join(b.dir, "stream"), good, 0o600))
		c := exec.Command(self)
		c.Env = append(os.Environ(), crashDirectory+"="+b.dir, fmt.Sprint(crashStep, "=", n))
		out, err := c.CombinedOutput()
		must(t, os.Remove(filepath.Join(b.dir, "stream")))
		if err == nil {
			whole++
		} else if c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v, %s", n, err, out)
		}
		killed++
		b.reopen(t, store.Options{})
		if err := b.intact(t); errors.Is(err, storeerr.ErrNotFound) {
			must(t, b.receive(t, "two", good))
			err = b.intact(t)
			must(t, err)
		} else {
			must(t, err)
		}
	}
	if killed < 30 {
		t.Errorf("the import has %d steps only", killed)
	}
	t.Logf("killed at %d steps", killed-1)
}

// intact verifies the snapshot "two".
func (h *host) intact(t testing.TB) error {
	t.Helper()
	if _, err := h.snapshots.Get("two"); err != nil {
		return err
	}
	must(t, h.snapshots.Hash(context.Background(), "two", nil))
	r, err := h.snapshots.Verify(context.Background(), "two")
	if err == nil && len(r.Damaged) > 0 {
		err = fmt.Errorf("damaged: %v", r.Damaged)
	}
	return err
}

// The disk is full at each step of the stores. The snapshot is not listed, no layer stays, and a retry succeeds.
func TestAFullDiskDuringAnImport(t *testing.T) {
	a := newHost(t, store.Options{})
	a.write(t, "one", noise(2, 300<<10))
	raw, err := a.export(t, "one")
	must(t, err)
	good := stream(t, layout(t, raw), false)
	for n := 1; ; n++ {
		b := newHost(t, store.Options{})
		left := n
		unset := failpoint.Set(func(failpoint.Step) error {
			if left--; left == 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		err := b.receive(t, "two", good)
		unset()
		if err == nil && left > 0 {
			if n < 10 {
				t.Errorf("the import has %d steps only", n)
			}
			return
		}
		b.reopen(t, store.Options{})
		if err := b.intact(t); errors.Is(err, storeerr.ErrNotFound) {
			_, err := b.layers.GC(false)
			must(t, err)
			if left := b.left(t); len(left) > 0 {
				t.Errorf("step %d left %v", n, left)
			}
			must(t, b.receive(t, "two", bytes.Clone(good)))
		}
		must(t, b.intact(t))
	}
}
