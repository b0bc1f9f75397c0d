package life_test

import (
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// Actions caused by time and traffic are reported, once. Requested actions are not reported.
func TestActsOfTimeAndTraffic(t *testing.T) {
	told := &enginefake.Acts{}
	h := enginefake.NewHost(t)
	c := &enginefake.Clocks{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.Cfg.Now, h.Cfg.Elapsed, h.Cfg.Acts = c.Now, c.Since, told.Add
	e := h.Open()
	h.Snapshot(e, "a")
	dies := h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	idle := h.ForkFor(e, sandbox.Life{Idle: 30 * time.Minute, AtEnd: sandbox.AtEndPause, AutoResume: true})
	asked := h.ForkFor(e, sandbox.Life{})
	h.Pause(e, asked.ID)
	if err := e.Kill(t.Context(), asked.ID); err != nil {
		t.Fatal(err)
	}
	c.Pass(2 * time.Hour)
	for id, want := range map[string]sandbox.Status{dies.ID: "", idle.ID: sandbox.StatusPaused} {
		if s := enginefake.StatusOf(h, e, id); s != want {
			t.Errorf("%s is %q, want %q", id, s, want)
		}
	}
	for range 2 { // the second time it runs
		if runs, err := e.Rouse(t.Context(), idle.ID); !runs || err != nil {
			t.Errorf("it does not go on: %v", err)
		}
	}
	for id, want := range map[string][]string{dies.ID: {"sandbox.kill deadline"},
		idle.ID: {"sandbox.pause idle", "sandbox.resume use"}, asked.ID: nil} {
		if got := told.Of(id); !slices.Equal(got, want) {
			t.Errorf("of %s it was told %v, want %v", id, got, want)
		}
	}
}
