package op_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// populated returns the number of running VMs with populated memory.
func populated(h *enginefake.Host) int {
	found, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "populated-*"))
	return len(found)
}

func TestARecordedWorkingSetHelpsTheChildren(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	if !enginefake.HasWorkingSet(h, "a") {
		t.Error("no working set was kept")
	}
	h.Empty() // of the recorded child
	if sbs := e.List(); len(sbs) != 0 {
		t.Errorf("the recording left %v", sbs)
	}
	h.Fork(e, "a", 3)
	if n := populated(h); n != 3 {
		t.Errorf("%d of 3 children were populated", n)
	}
}

func TestASnapshotIsAsGoodWithoutAWorkingSet(t *testing.T) {
	for name, prepare := range map[string]func(h *enginefake.Host){
		"not wanted":            func(h *enginefake.Host) { h.Cfg.NoWorkingSet = true },
		"its restore fails":     func(h *enginefake.Host) { h.Fault("restore-fail", 1) },
		"it dies":               func(h *enginefake.Host) { h.Fault("restore-die", 1) },
		"it stays a clone":      func(h *enginefake.Host) { h.Fault("identity-clone", 1) },
		"its guest dies":        func(h *enginefake.Host) { h.Fault("identity-die", 1) },
		"its pages are unknown": func(h *enginefake.Host) { h.Fault("working-set-fail", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			prepare(h)
			e := h.Open()
			h.Snapshot(e, "a")
			if enginefake.HasWorkingSet(h, "a") {
				t.Error("a working set was kept")
			}
			h.Empty()
			h.Fork(e, "a", 2)
			if n := populated(h); n != 0 {
				t.Errorf("%d children were populated with nothing", n)
			}
		})
	}
}

// derive makes b on top of a, and injects fault just before the capture of the child. It then
// closes broken, unless that is nil.
func derive(h *enginefake.Host, ctx context.Context, e *engine.Engine, fault string, broken chan<- struct{}) error {
	req := sandbox.DeriveRequest{Tag: "b", From: "a", Exec: []string{"echo", "x"}}
	_, err := e.DeriveSnapshot(ctx, req, func(s sandbox.Step) {
		if s.Name == sandbox.StepCapture && !s.Done && fault != "" {
			h.Fault(fault, 1)
			if broken != nil {
				close(broken)
			}
		}
	})
	if left := e.List(); len(left) != 0 {
		h.T.Errorf("left: %+v", left)
	}
	h.Empty()
	return err
}

// A snapshot on top of another has its own working set, as its children also touch pages changed by
// the step on top.
func TestASnapshotOnTopOfAnotherIsRecordedToo(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Fault("working-set-fail", 1)
	e := h.Open()
	h.Snapshot(e, "a")
	if err := derive(h, t.Context(), e, "", nil); err != nil {
		t.Fatal(err)
	}
	if enginefake.HasWorkingSet(h, "a") || !enginefake.HasWorkingSet(h, "b") {
		t.Errorf("kept with a: %t, want none; with b: %t, want one", enginefake.HasWorkingSet(h, "a"), enginefake.HasWorkingSet(h, "b"))
	}
	h.Fork(e, "b", 2)
	if n := populated(h); n != 2 {
		t.Errorf("%d of 2 children were populated", n)
	}
}

// If recording fails, the working set is taken from the snapshot below.
func TestASnapshotOnTopOfAnotherHasItsParentsWorkingSet(t *testing.T) {
	for _, fault := range []string{"restore-die", "restore-fail", "identity-die", "working-set-fail"} {
		t.Run(fault, func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			h.Snapshot(e, "a")
			if err := derive(h, t.Context(), e, fault, nil); err != nil {
				t.Fatal(err)
			}
			if !enginefake.HasWorkingSet(h, "b") {
				t.Error("its parent's was not kept")
			}
			h.Fork(e, "b", 1)
		})
	}
}

func TestADerivationThatIsCancelledWhileItRecordsLeavesNothing(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	before := h.Stored()
	ctx, cancel := context.WithCancel(t.Context())
	derived, broken := make(chan error, 1), make(chan struct{})
	go func() { derived <- derive(h, ctx, e, "restore-hang", broken) }()
	<-broken
	enginefake.Eventually(t, "recording", func() bool {
		left, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "restore-hang.*"))
		return len(left) == 0
	})
	cancel()
	if err := <-derived; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if after := h.Stored(); after != before {
		t.Errorf("the store holds %s, before %s", after, before)
	}
}

// populatedShells returns the number of shells populated ahead of a fork.
func populatedShells(h *enginefake.Host) int {
	found, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "shell-populated-*"))
	return len(found)
}

func TestAPreparedShellIsPopulatedAheadOfItsFork(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("populate-shell-fail", 1) // the fork works without it
	if err := e.SetPool(t.Context(), "a", 3); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "full pool", func() bool { return e.Pools()[0].Ready == 3 })
	if shells, children := populatedShells(h), populated(h); shells != 2 || children != 0 {
		t.Errorf("%d shells and %d children were populated, want 2 and none", shells, children)
	}
	h.Fork(e, "a", 3)
	if n := populated(h); n != 3 {
		t.Errorf("%d of 3 children were populated", n)
	}
}

// timesPopulated returns how often a fork's only child was populated.
func timesPopulated(h *enginefake.Host) int {
	h.T.Helper()
	found, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "populated-*"))
	if len(found) != 1 {
		h.T.Fatalf("%d VMs were populated, want one", len(found))
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		h.T.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// A first program is like a first evaluation: its working set was recorded, and is populated before
// it, once.
func TestAFirstProgramIsPopulated(t *testing.T) {
	run := func(e *engine.Engine, id string) error {
		_, err := e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"echo"}})
		return err
	}
	dial := func(e *engine.Engine, id string) error {
		conn, err := e.DialAgent(t.Context(), id)
		if err == nil {
			conn.Close()
		}
		return err
	}
	eval := func(e *engine.Engine, id string) error {
		_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "1"})
		return err
	}
	for name, test := range map[string]struct {
		asked []func(*engine.Engine, string) error
		want  []int // how often it was populated, after each
	}{
		"a program":                     {[]func(*engine.Engine, string) error{run, run, dial}, []int{2, 2, 2}},
		"a connection to the agent":     {[]func(*engine.Engine, string) error{dial, run}, []int{2, 2}},
		"an evaluation, then a program": {[]func(*engine.Engine, string) error{eval, run}, []int{2, 2}},
		"a program, then an evaluation": {[]func(*engine.Engine, string) error{run, eval, eval}, []int{2, 3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			e := h.Open()
			h.Snapshot(e, "a")
			id := h.Fork(e, "a", 1)[0].ID
			for i, ask := range test.asked {
				if err := ask(e, id); err != nil {
					t.Fatal(err)
				}
				if n := timesPopulated(h); n != test.want[i] {
					t.Errorf("after request %d it was populated %d times, want %d", i+1, n, test.want[i])
				}
			}
		})
	}
}

// The next daemon does not know a sandbox's earlier requests.
func TestASandboxOfAnEarlierDaemonIsNotPopulated(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	h.Close(e)
	e = h.Open()
	h.Eval(e, id, "1")
	if _, err := e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"echo"}}); err != nil {
		t.Fatal(err)
	}
	if n := timesPopulated(h); n != 1 {
		t.Errorf("it was populated %d times, want once: at its fork", n)
	}
}

func TestWhatIsAskedFirstIsRecorded(t *testing.T) {
	for first, recorded := range map[string]bool{"": true, "true": true, "false": false} {
		h := enginefake.NewHost(t)
		images := h.Cfg.Images.(enginefake.Images)
		images.First = first
		h.Cfg.Images = images
		e := h.Open()
		h.Snapshot(e, "a")
		for file, want := range map[string]bool{snapshot.EvalSetFile: true, snapshot.ExecSetFile: recorded} {
			_, err := os.Stat(filepath.Join(h.Cfg.StoreDir, "snapshots", "a", file))
			if got := err == nil; got != want {
				t.Errorf("first_use is %q: %s is there: %t, want %t", first, file, got, want)
			}
		}
		h.Close(e)
	}
}

func TestAPlainShellIsNotPopulated(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fork(e, "a", 2)
	if n := populatedShells(h); n != 0 {
		t.Errorf("%d were populated as shells", n)
	}
}

func TestAChildThatIsNotPopulatedLives(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("populate-fail", 1)
	h.Fork(e, "a", 3)
	if n := populated(h); n != 2 {
		t.Errorf("%d children were populated, want 2", n)
	}
}

func TestAChildThatDiesWhenPopulatedFailsAlone(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("populate-die", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 3})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, c := range r.Children {
		if c.Err != nil {
			failed++
			enginefake.WantError(t, c.Err, enginefake.ErrAny, "signal: killed")
		}
	}
	if failed != 1 {
		t.Errorf("%d children failed, want 1", failed)
	}
}

func TestACreationThatIsCancelledWhileItRecordsLeavesNothing(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Fault("restore-hang", 1)
	e := h.Open()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	created := make(chan error, 1)
	go func() {
		_, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil)
		created <- err
	}()
	enginefake.Eventually(t, "recording", func() bool {
		left, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "restore-hang.*"))
		return len(left) == 0
	})
	cancel(gone)
	if err := <-created; !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	h.Empty()
	if s := h.Stored(); s != "" {
		t.Errorf("the store holds %s", s)
	}
}
