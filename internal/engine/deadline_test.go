package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// clocks holds a host's clocks: the wall clock, which can be set, and a monotonic clock.
type clocks struct {
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

func (c *clocks) pass(d time.Duration) { c.set(d, d) }

// set moves the wall clock and the monotonic clock.
func (c *clocks) set(wall, elapsed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.elapsed = c.wall.Add(wall), c.elapsed+elapsed
}

func (c *clocks) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *clocks) since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// lifeHost returns a host with clocks controlled by the test, an engine, and a snapshot "a".
func lifeHost(t *testing.T) (*host, *Engine, *clocks) {
	t.Helper()
	h := newHost(t)
	c := &clocks{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.cfg.Now, h.cfg.Elapsed = c.now, c.since
	e := h.open()
	h.snapshot(e, "a")
	return h, e, c
}

func (h *host) forkFor(e *Engine, l sandbox.Life) sandbox.Info {
	h.t.Helper()
	r, err := e.Fork(h.t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Life: l})
	if err != nil || r.Children[0].Err != nil {
		h.t.Fatal(err, r)
	}
	return r.Children[0].Info
}

// statusOf returns a sandbox's status after all due actions. It is empty if the sandbox is gone.
// The engine also checks its sandboxes in the background.
func (h *host) statusOf(e *Engine, id string) sandbox.Status {
	h.t.Helper()
	e.Look(h.t.Context())
	for {
		info, err := e.Get(id)
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			return ""
		case err != nil:
			h.t.Fatal(err)
		case info.Status == sandbox.StatusPausing:
			time.Sleep(time.Millisecond) // elapses: the engine's own look has it
			continue
		}
		return info.Status
	}
}

func TestDeadlines(t *testing.T) {
	h, e, c := lifeHost(t)
	dies := h.forkFor(e, sandbox.Life{TTL: time.Hour})
	sleeps := h.forkFor(e, sandbox.Life{TTL: time.Hour, AtEnd: sandbox.AtEndPause})
	stays := h.forkFor(e, sandbox.Life{})
	longer := h.forkFor(e, sandbox.Life{TTL: time.Hour})
	laid := h.forkFor(e, sandbox.Life{TTL: time.Hour})
	h.pause(e, laid.ID)
	if !dies.Life.Deadline.Equal(c.now().Add(time.Hour)) || dies.Life.AtEnd != sandbox.AtEndKill {
		t.Errorf("its life is %+v", dies.Life)
	}
	c.pass(59 * time.Minute)
	for _, i := range []sandbox.Info{dies, sleeps, stays, longer} {
		if s := h.statusOf(e, i.ID); s != sandbox.StatusRunning {
			t.Errorf("%s is %q before its time", i.ID, s)
		}
	}
	if i, err := e.SetLife(t.Context(), longer.ID, sandbox.Life{TTL: time.Hour}); err != nil || !i.Life.Deadline.Equal(c.now().Add(time.Hour)) {
		t.Errorf("extended: %+v, %v", i.Life, err)
	}
	h.close(e) // the deadlines pass while there is no daemon
	c.pass(2 * time.Minute)
	e = h.open()
	for _, w := range []struct {
		i    sandbox.Info
		want sandbox.Status
	}{{dies, ""}, {laid, ""}, {sleeps, sandbox.StatusPaused}, {stays, sandbox.StatusRunning}, {longer, sandbox.StatusRunning}} {
		if s := h.statusOf(e, w.i.ID); s != w.want {
			t.Errorf("%s is %q, want %q", w.i.ID, s, w.want)
		}
	}
	// After the resume it has the full time again.
	i := h.resume(e, sleeps.ID)
	if !i.Life.Deadline.Equal(c.now().Add(time.Hour)) {
		t.Errorf("its life is %+v at %s", i.Life, c.now())
	}
	if s := h.statusOf(e, sleeps.ID); s != sandbox.StatusRunning {
		t.Errorf("it is %q", s)
	}
}

// Deadlines follow changes of the wall clock; idle times do not.
func TestAClockThatJumps(t *testing.T) {
	h, e, c := lifeHost(t)
	soon := h.forkFor(e, sandbox.Life{TTL: 30 * time.Minute})
	late := h.forkFor(e, sandbox.Life{TTL: 2 * time.Hour})
	idle := h.forkFor(e, sandbox.Life{Idle: 30 * time.Minute})
	c.set(-time.Hour, 0)
	c.pass(29 * time.Minute)
	for _, i := range []sandbox.Info{soon, late, idle} {
		if s := h.statusOf(e, i.ID); s != sandbox.StatusRunning {
			t.Errorf("%s is %q, an hour back", i.ID, s)
		}
	}
	c.set(time.Hour, 0) // it is correct again
	c.set(time.Hour, 0)
	for _, w := range []struct {
		i    sandbox.Info
		want sandbox.Status
	}{{soon, ""}, {late, sandbox.StatusRunning}, {idle, sandbox.StatusRunning}} {
		if s := h.statusOf(e, w.i.ID); s != w.want {
			t.Errorf("%s is %q an hour ahead, want %q", w.i.ID, s, w.want)
		}
	}
	c.pass(time.Minute)
	if s := h.statusOf(e, idle.ID); s != "" {
		t.Errorf("the idle one is %q", s)
	}
}

// An open stream keeps a sandbox from being idle, and each call restarts the idle time.
func TestIdleness(t *testing.T) {
	h, e, c := lifeHost(t)
	sb := h.forkFor(e, sandbox.Life{Idle: time.Minute, AtEnd: sandbox.AtEndPause, AutoResume: true})
	conn, err := e.DialAgent(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.pass(time.Hour)
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("with an open stream it is %q", s)
	}
	conn.Close()
	c.pass(59 * time.Second)
	h.eval(e, sb.ID, "index")
	c.pass(59 * time.Second)
	for _, i := range e.List() {
		if i.Unused != 59*time.Second {
			t.Errorf("it is unused for %s", i.Unused)
		}
	}
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("in time it is %q", s)
	}
	c.pass(time.Second)
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusPaused {
		t.Errorf("idle it is %q", s)
	}
	h.eval(e, sb.ID, "index") // this wakes it
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("woken it is %q", s)
	}
	// Used after it was found idle: it is not paused.
	_, err = e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{IdleFor: time.Minute})
	wantError(t, err, sandbox.ErrConflict, "in use")
	h.eval(e, sb.ID, "index")
}

// A sandbox that cannot be paused when due keeps running, reports the reason, and is retried.
func TestAnIdleSandboxThatCannotBePaused(t *testing.T) {
	h, e, c := lifeHost(t)
	sb := h.forkFor(e, sandbox.Life{TTL: time.Minute, AtEnd: sandbox.AtEndPause})
	h.fault("capture-full", 1)
	c.pass(time.Minute)
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("it is %q", s)
	}
	i := mustGet(t, e, sb.ID)
	if !strings.Contains(i.Warning, "no space left") {
		t.Errorf("the warning is %q", i.Warning)
	}
	h.eval(e, sb.ID, "index")
	c.pass(30 * time.Second)
	if s := h.statusOf(e, sb.ID); s != sandbox.StatusPaused {
		t.Errorf("later it is %q", s)
	}
	if i := mustGet(t, e, sb.ID); i.Warning != "" {
		t.Errorf("the warning is %q", i.Warning)
	}
}

// A sandbox set to keep only its disk does so at its deadline and when idle.
func TestAnEndThatKeepsTheDiskAlone(t *testing.T) {
	h, e, c := lifeHost(t)
	made := h.disky(e, 2)
	for i, l := range []sandbox.Life{{TTL: time.Minute}, {Idle: time.Minute}} {
		l.AtEnd, l.FilesystemOnly = sandbox.AtEndPause, true
		if _, err := e.SetLife(t.Context(), made[i].ID, l); err != nil {
			t.Fatal(err)
		}
	}
	h.close(e) // the setting outlives the daemon
	e = h.open()
	c.pass(time.Minute)
	for _, sb := range made {
		if s := h.statusOf(e, sb.ID); s != sandbox.StatusPaused {
			t.Errorf("at its end it is %q", s)
		}
		if i := mustGet(t, e, sb.ID); !i.Cold || i.PausedIn != "" {
			t.Errorf("paused it is %+v", i)
		}
		if i := h.resume(e, sb.ID); !i.Life.FilesystemOnly {
			t.Errorf("its life is %+v", i.Life)
		}
	}
}

func TestLivesThatAreRefused(t *testing.T) {
	h, e, c := lifeHost(t)
	for _, l := range []sandbox.Life{
		{TTL: -1}, {TTL: time.Millisecond}, {Idle: -1}, {Idle: sandbox.MaxLife + 1}, {TTL: sandbox.MaxLife + 1}, {AtEnd: "sleep"},
		{AtEnd: sandbox.AtEndKill, FilesystemOnly: true}, {FilesystemOnly: true},
		{Deadline: c.now()}, {Deadline: c.now().Add(2 * sandbox.MaxLife)},
	} {
		_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Life: l})
		wantError(t, err, sandbox.ErrInvalid)
	}
	sb := h.forkFor(e, sandbox.Life{Deadline: c.now().Add(time.Hour)})
	if sb.Life.TTL != time.Hour {
		t.Errorf("%+v", sb.Life)
	}
	_, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{TTL: 1})
	wantError(t, err, sandbox.ErrInvalid)
	_, err = e.SetLife(t.Context(), "sb-none", sandbox.Life{})
	wantError(t, err, sandbox.ErrNotFound)
	// For a paused sandbox, it is stored in its record.
	h.pause(e, sb.ID)
	if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{Idle: time.Hour}); err != nil {
		t.Fatal(err)
	}
	h.close(e)
	e = h.open()
	if l := mustGet(t, e, sb.ID).Life; l != (sandbox.Life{Idle: time.Hour, AtEnd: sandbox.AtEndKill}) {
		t.Errorf("%+v", l)
	}
	if _, err := os.Stat(filepath.Join(h.cfg.StoreDir, "paused", sb.ID+".json")); err != nil {
		t.Error(err)
	}
}
