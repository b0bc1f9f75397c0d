package op_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// promoteHost returns an engine with a sandbox, and two children of a branch of it.
func promoteHost(t *testing.T) (h *enginefake.Host, e *engine.Engine, above sandbox.Info, children [2]sandbox.Info) {
	t.Helper()
	h, e, above = rollbackHost(t)
	for i, c := range h.Fork(e, "b", 2) {
		children[i] = c
	}
	return h, e, above, children
}

// doomedToPromote promotes the child of a branch.
func doomedToPromote(ctx context.Context, e *engine.Engine, _ engine.Config) error {
	if _, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		return err
	}
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil {
		return err
	}
	b, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: r.Children[0].Info.ID, Tag: "b", N: 1})
	if err != nil {
		return err
	}
	_, err = e.Promote(ctx, sandbox.PromoteRequest{Child: b.Fork.Children[0].Info.ID, Tag: "old"})
	return err
}

// A daemon is killed at every step. Under the next one either both sandboxes are there, and the
// promotion can be repeated, or the child is in its new place.
func TestADaemonThatIsKilledDuringAPromotion(t *testing.T) {
	for _, step := range []failpoint.Step{failpoint.PauseCaptured, failpoint.PauseWritten, failpoint.RollbackBegun,
		failpoint.RollbackRestored, failpoint.RollbackConfirmed, failpoint.RollbackRecorded, failpoint.RollbackExchanged} {
		t.Run(string(step), func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.MakeUpper()
			enginefake.KillDaemonAt(h, "promote", string(step))
			e := h.Open()
			all := e.List()
			above := all[0]
			if done := step == failpoint.RollbackExchanged; done != (len(all) == 1) || done != (above.PromotedFrom != "") {
				t.Fatalf("listed: %+v", all)
			}
			if len(all) == 2 {
				enginefake.Eventually(t, "the child to go on", func() bool {
					i := enginefake.MustGet(t, e, all[1].ID)
					return i.Status == sandbox.StatusRunning && !i.Promoting && h.Eval(e, i.ID, "sandbox_id") == i.ID
				})
				if _, err := e.Promote(t.Context(), sandbox.PromoteRequest{Child: all[1].ID, Discard: true}); err != nil {
					t.Fatal(err)
				}
			}
			if got := h.Eval(e, above.ID, "sandbox_id"); got != above.ID {
				t.Errorf("it says that it is %q", got)
			}
			if _, err := e.Rollback(t.Context(), above.ID, "old"); err != nil {
				t.Errorf("back to the old state: %v", err)
			}
			enginefake.Eventually(t, "one VM", func() bool { return len(strings.Fields(runDirs(h))) == 1 })
		})
	}
}

// If a promotion fails, both sandboxes run as before, and no snapshot is left.
func TestAPromotionThatFails(t *testing.T) {
	h, e, above, children := promoteHost(t)
	stop := failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.RollbackConfirmed {
			for _, pid := range h.Journalled() {
				if pid != above.PID && pid != children[1].PID && pid != children[0].PID {
					unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		return nil
	})
	_, err := e.Promote(t.Context(), sandbox.PromoteRequest{Child: children[0].ID, Tag: "old"})
	stop()
	enginefake.WantError(t, err, sandbox.ErrGuestGone, children[0].ID)
	for _, id := range []string{above.ID, children[0].ID} {
		if i := enginefake.MustGet(t, e, id); i.Status != sandbox.StatusRunning || i.PromotedFrom != "" || i.Promoting || h.Eval(e, id, "sandbox_id") != id {
			t.Errorf("it is now %+v", i)
		}
	}
	if _, err := e.SnapshotInfo(t.Context(), "old"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("the snapshot of the old state: %v", err)
	}
	if _, err := e.Promote(t.Context(), sandbox.PromoteRequest{Child: children[0].ID, Tag: "old"}); err != nil {
		t.Error(err)
	}
}

// Of two siblings that are promoted at the same time, one is refused and goes on.
func TestTwoPromotionsToOnePlace(t *testing.T) {
	h, e, above, children := promoteHost(t)
	var wg sync.WaitGroup
	var errs [2]error
	inside := make(chan struct{})
	at(t, failpoint.RollbackBegun, func() { close(inside); wg.Wait() })
	first := make(chan struct{})
	go func() {
		_, errs[0] = e.Promote(t.Context(), sandbox.PromoteRequest{Child: children[0].ID})
		close(first)
	}()
	wg.Go(func() {
		<-inside
		_, errs[1] = e.Promote(t.Context(), sandbox.PromoteRequest{Child: children[1].ID})
	})
	<-first
	wg.Wait()
	enginefake.WantError(t, errs[1], sandbox.ErrConflict, "another promotion")
	if errs[0] != nil || enginefake.MustGet(t, e, above.ID).PromotedFrom != children[0].ID {
		t.Error(errs[0])
	}
	if i := enginefake.MustGet(t, e, children[1].ID); i.PID != children[1].PID || h.Eval(e, i.ID, "sandbox_id") != i.ID {
		t.Errorf("the other is now %+v", i)
	}
}

// A promotion leaves no file of the child. The place keeps its settings, and the new state its disk.
func TestWhatAPromotionKeeps(t *testing.T) {
	h, e, above, children := promoteHost(t)
	same, _ := identityOf(h, e, above.ID)
	disk := h.ReadOverlay(children[0].ID)
	if _, err := e.SetLife(t.Context(), above.ID, sandbox.Life{TTL: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	before := enginefake.MustGet(t, e, above.ID)
	res, err := e.Promote(t.Context(), sandbox.PromoteRequest{Child: children[0].ID, Discard: true})
	if err != nil {
		t.Fatal(err)
	}
	i := res.Info
	if i.Life != before.Life || i.TrafficToken != before.TrafficToken || i.Index != before.Index || i.CreatedAt != before.CreatedAt {
		t.Errorf("it is now %+v, before it was %+v", i, before)
	}
	if now, _ := identityOf(h, e, above.ID); now != same {
		t.Errorf("identity %q, before %q", now, same)
	}
	if got := h.ReadOverlay(above.ID); !strings.HasSuffix(got, disk) {
		t.Errorf("its disk has %q, the child's had %q", got, disk)
	}
	if err := e.Kill(t.Context(), above.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), children[1].ID); err != nil {
		t.Fatal(err)
	}
	h.Empty()
	enginefake.Eventually(t, "the end of the pause's snapshot", func() bool { return len(pauses(h)) == 0 })
}
