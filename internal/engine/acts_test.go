package engine

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// acts records the reported actions that had no request.
type acts struct {
	mu  sync.Mutex
	all []sandbox.Act
}

func (a *acts) add(act sandbox.Act) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, act)
}

// of returns the actions on a sandbox, as "action by".
func (a *acts) of(id string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, act := range a.all {
		if act.Of.ID == id {
			out = append(out, act.Action+" "+act.By)
		}
	}
	return out
}

// Actions caused by time and traffic are reported, once. Requested actions are not reported.
func TestActsOfTimeAndTraffic(t *testing.T) {
	told := &acts{}
	h := newHost(t)
	c := &clocks{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.cfg.Now, h.cfg.Elapsed, h.cfg.Acts = c.now, c.since, told.add
	e := h.open()
	h.snapshot(e, "a")
	dies := h.forkFor(e, sandbox.Life{TTL: time.Hour})
	idle := h.forkFor(e, sandbox.Life{Idle: 30 * time.Minute, AtEnd: sandbox.AtEndPause, AutoResume: true})
	asked := h.forkFor(e, sandbox.Life{})
	h.pause(e, asked.ID)
	if err := e.Kill(t.Context(), asked.ID); err != nil {
		t.Fatal(err)
	}
	c.pass(2 * time.Hour)
	for id, want := range map[string]sandbox.Status{dies.ID: "", idle.ID: sandbox.StatusPaused} {
		if s := h.statusOf(e, id); s != want {
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
		if got := told.of(id); !slices.Equal(got, want) {
			t.Errorf("of %s it was told %v, want %v", id, got, want)
		}
	}
}

func TestActsOfGuests(t *testing.T) {
	told := &acts{}
	g := newGuestBench(t, func(c *Config) { c.Acts = told.add })
	children := g.forked(g.root.ID, 2)
	if a := g.exit(children[0], 0, 0); a.Error != nil {
		t.Fatal(a.Error)
	}
	g.fault("restore-fail", 1)
	if a := g.fork(g.root.ID, 1); a.Error == nil {
		t.Fatalf("got %+v", a)
	}
	want := []string{"sandbox.fork guest", "sandbox.fork guest"}
	if got := told.of(g.root.ID); !slices.Equal(got, want) {
		t.Errorf("of the first it was told %v", got)
	}
	told.mu.Lock()
	if first, second := told.all[0], told.all[len(told.all)-1]; first.Count != 2 || first.Err != nil || second.Err == nil {
		t.Errorf("it was told %+v and %+v", first, second)
	}
	told.mu.Unlock()
	eventually(t, "the exit", func() bool { return slices.Equal(told.of(children[0]), []string{"sandbox.exit guest"}) })
}
