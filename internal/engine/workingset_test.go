package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
)

// populated is how many running VMs had their memory populated.
func (h *host) populated() int {
	found, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "fake", "populated-*"))
	return len(found)
}

func (h *host) hasWorkingSet(tag string) bool {
	_, err := os.Stat(filepath.Join(h.cfg.StoreDir, "snapshots", tag, snapshot.WorkingSetFile))
	return err == nil
}

func TestARecordedWorkingSetHelpsTheChildren(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	if !h.hasWorkingSet("a") {
		t.Error("no working set was kept")
	}
	h.empty() // of the child that was recorded
	if sbs := e.List(); len(sbs) != 0 {
		t.Errorf("the recording left %v", sbs)
	}
	h.fork(e, "a", 3)
	if n := h.populated(); n != 3 {
		t.Errorf("%d of 3 children were populated", n)
	}
}

func TestASnapshotIsAsGoodWithoutAWorkingSet(t *testing.T) {
	for name, prepare := range map[string]func(h *host){
		"not wanted":            func(h *host) { h.cfg.NoWorkingSet = true },
		"its restore fails":     func(h *host) { h.fault("restore-fail", 1) },
		"it dies":               func(h *host) { h.fault("restore-die", 1) },
		"it stays a clone":      func(h *host) { h.fault("identity-clone", 1) },
		"its guest dies":        func(h *host) { h.fault("identity-die", 1) },
		"its pages are unknown": func(h *host) { h.fault("working-set-fail", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			prepare(h)
			e := h.open()
			h.snapshot(e, "a")
			if h.hasWorkingSet("a") {
				t.Error("a working set was kept")
			}
			h.empty()
			h.fork(e, "a", 2)
			if n := h.populated(); n != 0 {
				t.Errorf("%d children were populated with nothing", n)
			}
		})
	}
}

// populatedShells is how many shells had mapped what costs them nothing.
func (h *host) populatedShells() int {
	found, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "fake", "shell-populated-*"))
	return len(found)
}

func TestAPreparedShellIsPopulatedAheadOfItsFork(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("populate-shell-fail", 1) // one can do without
	if err := e.SetPool(t.Context(), "a", 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "full pool", func() bool { return e.Pools()[0].Ready == 3 })
	if shells, children := h.populatedShells(), h.populated(); shells != 2 || children != 0 {
		t.Errorf("%d shells and %d children were populated, want 2 and none", shells, children)
	}
	h.fork(e, "a", 3)
	if n := h.populated(); n != 3 {
		t.Errorf("%d of 3 children were populated", n)
	}
}

func TestAPlainShellIsNotPopulated(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fork(e, "a", 2)
	if n := h.populatedShells(); n != 0 {
		t.Errorf("%d were populated as shells", n)
	}
}

func TestAChildThatIsNotPopulatedLives(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("populate-fail", 1)
	h.fork(e, "a", 3)
	if n := h.populated(); n != 2 {
		t.Errorf("%d children were populated, want 2", n)
	}
}

func TestAChildThatDiesWhenPopulatedFailsAlone(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("populate-die", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 3})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, c := range r.Children {
		if c.Err != nil {
			failed++
			wantError(t, c.Err, errAny, "signal: killed")
		}
	}
	if failed != 1 {
		t.Errorf("%d children failed, want 1", failed)
	}
}

func TestACreationThatIsCancelledWhileItRecordsLeavesNothing(t *testing.T) {
	h := newHost(t)
	h.fault("restore-hang", 1)
	e := h.open()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	created := make(chan error, 1)
	go func() {
		_, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil)
		created <- err
	}()
	eventually(t, "recording", func() bool {
		left, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "fake", "restore-hang.*"))
		return len(left) == 0
	})
	cancel(gone)
	if err := <-created; !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	h.empty()
	if s := h.stored(); s != "" {
		t.Errorf("the store holds %s", s)
	}
}
