package life_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// While the host is short of memory, unused sandboxes are paused one at a time, longest unused
// first. Sandboxes in use, and ones without automatic resume, are not paused.
func TestIdleSandboxesArePausedUnderPressure(t *testing.T) {
	h := enginefake.NewHost(t)
	c := &enginefake.Clocks{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.Cfg.Now, h.Cfg.Elapsed, h.Cfg.PauseUnused = c.Now, c.Since, time.Minute
	s := enginefake.Listen(h)
	e := h.Open()
	h.Snapshot(e, "a")
	wakes := sandbox.Life{AutoResume: true}
	// At its end it would keep only its disk; this is not its end.
	first := h.ForkFor(e, sandbox.Life{AutoResume: true, AtEnd: sandbox.AtEndPause, FilesystemOnly: true})
	second, inUse, young := h.ForkFor(e, wakes), h.ForkFor(e, wakes), h.ForkFor(e, wakes)
	stays := h.ForkFor(e, sandbox.Life{})
	conn, err := e.DialAgent(t.Context(), inUse.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.Pass(2 * time.Minute)
	h.Eval(e, second.ID, "index")
	c.Pass(2 * time.Minute)
	h.Eval(e, young.ID, "index")
	c.Pass(30 * time.Second)
	paused := func() (ids string) {
		for _, i := range e.List() {
			if i.Status != sandbox.StatusRunning {
				ids += i.ID + " "
			}
		}
		return ids
	}
	e.Look(t.Context())
	if got := paused(); got != "" {
		t.Fatalf("without pressure: %s", got)
	}
	pressed := func(h *enginefake.Host) { h.HostFacts.Pressure.Memory, h.Available = 30, 16<<30 }
	h.Change(e, pressed)
	enginefake.Eventually(t, "pause of the first", func() bool { e.Look(t.Context()); return s.Paused(first.ID) })
	enginefake.Eventually(t, "pause of the second", func() bool { e.Look(t.Context()); return s.Paused(second.ID) })
	for range 3 {
		e.Look(t.Context())
	}
	if got := paused(); strings.Count(got, " ") != 2 || !strings.Contains(got, first.ID) || !strings.Contains(got, second.ID) {
		t.Errorf("paused are %s, want %s and %s; not %s, %s, %s", got, first.ID, second.ID, inUse.ID, young.ID, stays.ID)
	}
	if told := s.Pauses(); len(told) != 2 || !strings.Contains(told[0], first.ID) ||
		!strings.Contains(told[0], "short of memory") {
		t.Errorf("told of: %q", told)
	}
	h.Change(e, func(h *enginefake.Host) { h.HostFacts.Pressure.Memory, h.Available = 0, 64<<30 })
	h.Eval(e, first.ID, "index") // it resumes automatically
	c.Pass(time.Hour)
	e.Look(t.Context())
	if got := paused(); got != second.ID+" " {
		t.Errorf("when it is over, paused are %s", got)
	}
}
