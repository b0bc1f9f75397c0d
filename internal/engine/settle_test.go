package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/receipt"
	"github.com/forkd/forkd/internal/sandbox"
)

// during has calls made while a sandbox is at a step of an operation, lets it go on when they wait, and returns their
// errors.
func during(t *testing.T, step failpoint.Step, op func() error, calls map[string]func() error) map[string]error {
	t.Helper()
	at, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	defer failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			once.Do(func() { close(at); <-on })
		}
		return nil
	})()
	var all sync.WaitGroup
	all.Go(func() {
		if err := op(); err != nil {
			t.Errorf("the operation: %v", err)
		}
	})
	<-at
	var mu sync.Mutex
	errs := map[string]error{}
	for name, call := range calls {
		all.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	time.Sleep(50 * time.Millisecond) // elapses: a call that does not wait has its answer by then
	mu.Lock()
	if len(errs) != 0 {
		t.Errorf("calls that did not wait for %s: %v", step, errs)
	}
	mu.Unlock()
	close(on)
	all.Wait()
	return errs
}

// Calls that meet a pause or a resume wait for its end. What they want then is done: a sandbox that goes on by
// itself is resumed, once, and one that stays paused refuses them.
func TestCallsWaitForATransition(t *testing.T) {
	h, e, sb := pauseHost(t)
	ctx := t.Context()
	calls := map[string]func() error{
		"eval":     func() error { return errorOf(e.Eval(ctx, sb.ID, sandbox.EvalRequest{Code: "index"})) },
		"ping":     func() error { return errorOf(e.Ping(ctx, sb.ID)) },
		"resume":   func() error { return errorOf(e.Resume(ctx, sb.ID)) },
		"resume 2": func() error { return errorOf(e.Resume(ctx, sb.ID)) },
		"rouse":    func() error { return errorOf(e.Rouse(ctx, sb.ID)) },
		"settled":  func() error { return errorOf(e.Settled(ctx, sb.ID)) },
	}
	pause := func() error { return errorOf(e.Pause(ctx, sb.ID, sandbox.PauseOptions{})) }
	resume := func() error { return errorOf(e.Resume(ctx, sb.ID)) }
	if _, err := e.SetLife(ctx, sb.ID, sandbox.Life{AutoResume: true}); err != nil {
		t.Fatal(err)
	}
	for name, err := range during(t, failpoint.PauseCaptured, pause, calls) {
		if err != nil {
			t.Errorf("%s during a pause: %v", name, err)
		}
	}
	list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: receipt.Resume})
	if err != nil || len(list) != 1 {
		t.Errorf("%d resumes, %v", len(list), err)
	}

	if _, err := e.SetLife(ctx, sb.ID, sandbox.Life{}); err != nil { // it stays paused
		t.Fatal(err)
	}
	delete(calls, "resume")
	delete(calls, "resume 2")
	errs := during(t, failpoint.PauseCaptured, pause, calls)
	wantError(t, errs["eval"], sandbox.ErrConflict, "paused")
	wantError(t, errs["ping"], sandbox.ErrConflict, "paused")

	calls["branch"] = func() error {
		return errorOf(e.Branch(ctx, sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", Mode: sandbox.BranchDiff}))
	}
	for name, err := range during(t, failpoint.ResumeConfirmed, resume, calls) {
		if err != nil {
			t.Errorf("%s during a resume: %v", name, err)
		}
	}
	h.isItself(e, sb.ID, 2)
}

// Those who wait are bounded, and one that gives up leaves.
func TestWaitersForATransitionAreBounded(t *testing.T) {
	_, e, sb := pauseHost(t)
	calls := map[string]func() error{"many": func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		refused := make(chan error, 300)
		for range 300 {
			all.Go(func() {
				if _, err := e.Settled(ctx, sb.ID); err != nil && ctx.Err() == nil {
					refused <- err
				}
			})
		}
		wantError(t, <-refused, sandbox.ErrBusy, "256 calls wait")
		cancel()
		all.Wait()
		_, err := e.Settled(t.Context(), sb.ID)
		return err
	}}
	pause := func() error { return errorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})) }
	if err := during(t, failpoint.PauseCaptured, pause, calls)["many"]; err != nil {
		t.Error(err)
	}
}

// A deadline of its running alone does not end a paused sandbox, and whatever has it go on sets it anew.
func TestAWakeHasADeadline(t *testing.T) {
	h := newHost(t)
	now := time.Now()
	h.cfg.Now = func() time.Time { return now }
	e := h.open()
	sb := h.disky(e, 1)[0]
	life := sandbox.Life{TTL: 20 * time.Second, AutoResume: true, WhileRunning: true}
	if _, err := e.SetLife(t.Context(), sb.ID, life); err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{time.Second, time.Hour} { // before its deadline, and after it
		h.pause(e, sb.ID)
		now = now.Add(later)
		e.Watch.Look(t.Context())
		if _, err := e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"}); err != nil {
			t.Fatal(err)
		}
		i, err := e.Get(sb.ID)
		if err != nil || !i.Life.Deadline.Equal(now.Add(20*time.Second).Round(0).UTC()) {
			t.Errorf("paused for %s: its deadline is %s, now is %s, %v", later, i.Life.Deadline, now, err)
		}
	}
	now = now.Add(21 * time.Second)
	e.Watch.Look(t.Context())
	if _, err := e.Get(sb.ID); err == nil {
		t.Error("it runs past its deadline")
	}
}
