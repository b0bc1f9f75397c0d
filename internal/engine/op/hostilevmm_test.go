package op_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// A VMM can write to its capture files for as long as it lives. Its writes do not reach the
// snapshot.
func TestAVMMCannotChangeTheSnapshotThatWasMadeOfIt(t *testing.T) {
	h, e, sb := forked(t)
	h.Fault("keep-files", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	if r, err := e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "scribble"}); err != nil || r.Result != "3" {
		t.Fatalf("the VMM wrote to %q files, %v; want 3", r.Result, err)
	}
	h.Fork(e, "b", 2)
	enginefake.Verifies(h, e, "b")
}

// A VMM that never answers again costs each of its branches the time limit. Other sandboxes are not
// affected.
func TestAVMMThatHangsInItsCapture(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.Branches, h.Cfg.BranchTimeout = 4, 2*time.Second // long enough for a branch on a busy machine
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 1+h.Cfg.Branches)
	h.Fault("capture-hang", 1)
	var wg sync.WaitGroup
	for range 2 * h.Cfg.Branches {
		wg.Go(func() {
			_, err := e.Branch(context.Background(), sandbox.BranchRequest{SandboxID: sbs[0].ID})
			if !errors.Is(err, sandbox.ErrTimeout) && !errors.Is(err, sandbox.ErrBusy) {
				t.Errorf("got %v", err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("branches of a VMM that does not answer never end")
	}
	for i := range h.Cfg.Branches { // at once: no turn is still taken
		wg.Go(func() {
			if _, err := e.Branch(context.Background(), sandbox.BranchRequest{SandboxID: sbs[1+i].ID}); err != nil {
				t.Errorf("another sandbox: %v", err)
			}
		})
	}
	wg.Wait()
	if err := e.Kill(t.Context(), sbs[0].ID); err != nil {
		t.Errorf("kill: %v", err)
	}
}
