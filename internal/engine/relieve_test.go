package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// While the host is short of memory, unused sandboxes are paused one at a time, longest unused
// first. Sandboxes in use, and ones without automatic resume, are not paused.
func TestIdleSandboxesArePausedUnderPressure(t *testing.T) {
	h := newHost(t)
	c := &clocks{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.cfg.Now, h.cfg.Elapsed, h.cfg.PauseUnused = c.now, c.since, time.Minute
	s := h.listen()
	e := h.open()
	h.snapshot(e, "a")
	wakes := sandbox.Life{AutoResume: true}
	// At its end it would keep only its disk; this is not its end.
	first := h.forkFor(e, sandbox.Life{AutoResume: true, AtEnd: sandbox.AtEndPause, FilesystemOnly: true})
	second, inUse, young := h.forkFor(e, wakes), h.forkFor(e, wakes), h.forkFor(e, wakes)
	stays := h.forkFor(e, sandbox.Life{})
	conn, err := e.DialAgent(t.Context(), inUse.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.pass(2 * time.Minute)
	h.eval(e, second.ID, "index")
	c.pass(2 * time.Minute)
	h.eval(e, young.ID, "index")
	c.pass(30 * time.Second)
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
	pressed := func(h *host) { h.facts.Pressure.Memory, h.available = 30, 16<<30 }
	h.change(e, pressed)
	eventually(t, "pause of the first", func() bool { e.Look(t.Context()); return s.paused(first.ID) })
	eventually(t, "pause of the second", func() bool { e.Look(t.Context()); return s.paused(second.ID) })
	for range 3 {
		e.Look(t.Context())
	}
	if got := paused(); strings.Count(got, " ") != 2 || !strings.Contains(got, first.ID) || !strings.Contains(got, second.ID) {
		t.Errorf("paused are %s, want %s and %s; not %s, %s, %s", got, first.ID, second.ID, inUse.ID, young.ID, stays.ID)
	}
	if told := s.pauses(); len(told) != 2 || !strings.Contains(told[0], first.ID) ||
		!strings.Contains(told[0], "short of memory") {
		t.Errorf("told of: %q", told)
	}
	h.change(e, func(h *host) { h.facts.Pressure.Memory, h.available = 0, 64<<30 })
	h.eval(e, first.ID, "index") // it resumes automatically
	c.pass(time.Hour)
	e.Look(t.Context())
	if got := paused(); got != second.ID+" " {
		t.Errorf("when it is over, paused are %s", got)
	}
}

func (s *told) paused(id string) bool { return strings.Contains(s.of(id), sandbox.EventPaused) }

// pauses returns the events of paused sandboxes.
func (s *told) pauses() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if strings.HasPrefix(e, sandbox.EventPaused+" ") {
			all = append(all, e)
		}
	}
	return all
}
