package op_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// wantDraining checks that each error is a drain's refusal.
func wantDraining(t *testing.T, refused map[string]error) {
	t.Helper()
	for what, err := range refused {
		if !errors.Is(err, sandbox.ErrDraining) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
}

func TestADrainedEngineTakesNoSandboxesAndPausesTheRest(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	list := h.Disky(e, 2)
	one, two := list[0], list[1]
	h.Pause(e, two.ID)
	if err := e.Drain.Start(drain.ModeWait, false); err != nil {
		t.Fatal(err)
	}
	refused := func() map[string]error {
		return map[string]error{
			"fork":   enginefake.ErrorOf(e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1})),
			"branch": h.Branch(e, one.ID, "x"),
			"resume": enginefake.ErrorOf(e.Resume(t.Context(), two.ID)),
			"create": enginefake.ErrorOf(e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "n", Image: "disky"}, nil)),
			"derive": enginefake.ErrorOf(e.DeriveSnapshot(t.Context(), sandbox.DeriveRequest{Tag: "n", From: "d", Exec: []string{"true"}}, nil)),
			"diff":   enginefake.ErrorOf(e.DiffSnapshots(t.Context(), sandbox.DiffRequest{Before: "d", After: "d"})),
		}
	}
	wantDraining(t, refused())
	if _, err := e.Eval(t.Context(), one.ID, sandbox.EvalRequest{Code: "index"}); err != nil {
		t.Errorf("eval in a running sandbox: %v", err)
	}
	if _, err := e.Resume(t.Context(), one.ID); err != nil {
		t.Errorf("resume of a running sandbox: %v", err)
	}
	if s := e.Drain.Status(); len(s.Left) != 1 || s.Paused != 1 || s.Coming != 0 {
		t.Errorf("status is %+v", s)
	}
	if err := e.Drain.Start(drain.ModePause, false); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "pause of the rest", func() bool { return e.Drain.Status().Empty() })
	e = reboot(h, e)
	wantDraining(t, refused())
	if err := e.Drain.Cancel(); err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if got := h.Resume(e, sb.ID); got.Status != sandbox.StatusRunning {
			t.Errorf("after the cancel sandbox %s is %s", sb.ID, got.Status)
		}
	}
	h.Fork(e, "d", 1)
}

func TestTheNextEngineGoesOnWithADrain(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	if err := e.Drain.Start(drain.ModeWait, false); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	e = h.Open() // it adopts the running VM
	if s := e.Drain.Status(); s.Order == nil || len(s.Left) != 1 || s.Left[0].ID != sb.ID {
		t.Errorf("status is %+v", s)
	}
	if err := e.Drain.Start(drain.ModePause, false); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "pause of an adopted sandbox", func() bool { return e.Drain.Status().Empty() })
}
