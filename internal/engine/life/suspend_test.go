package life_test

import (
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// If a pause suspends the deadline, the sandbox is not killed while it is paused, and every way to
// wake it restarts the deadline.
func TestADeadlineIsHeldWhilePaused(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	sb := h.ForkFor(e, sandbox.Life{})
	set := sandbox.Life{TTL: time.Hour, AtEnd: sandbox.AtEndKill, AutoResume: true}
	if _, err := e.SetLife(t.Context(), sb.ID, set); err != nil {
		t.Fatal(err)
	}
	for name, wake := range map[string]func() error{
		"resume": func() error { return enginefake.ErrorOf(e.Resume(t.Context(), sb.ID)) },
		"traffic": func() error {
			return enginefake.ErrorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"}))
		},
	} {
		h.PauseBy(e, sb.ID, sandbox.PauseOptions{Suspend: true})
		c.Pass(2 * time.Hour)
		e.Look(t.Context())
		if i := enginefake.MustGet(t, e, sb.ID); i.Status != sandbox.StatusPaused || !i.Life.Suspended {
			t.Fatalf("%s: after its deadline it is %s, held %v", name, i.Status, i.Life.Suspended)
		}
		if err := wake(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		i := enginefake.MustGet(t, e, sb.ID)
		if left := i.Life.Deadline.Sub(c.Now()); i.Life.Suspended || left < 59*time.Minute || left > time.Hour {
			t.Errorf("%s: its deadline is in %s, held %v", name, left, i.Life.Suspended)
		}
	}
}
