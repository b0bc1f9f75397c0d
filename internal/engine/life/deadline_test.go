package life_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestDeadlines(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	dies := h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	sleeps := h.ForkFor(e, sandbox.Life{TTL: time.Hour, AtEnd: sandbox.AtEndPause})
	stays := h.ForkFor(e, sandbox.Life{})
	longer := h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	laid := h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	h.Pause(e, laid.ID)
	if !dies.Life.Deadline.Equal(c.Now().Add(time.Hour)) || dies.Life.AtEnd != sandbox.AtEndKill {
		t.Errorf("its life is %+v", dies.Life)
	}
	c.Pass(59 * time.Minute)
	for _, i := range []sandbox.Info{dies, sleeps, stays, longer} {
		if s := enginefake.StatusOf(h, e, i.ID); s != sandbox.StatusRunning {
			t.Errorf("%s is %q before its time", i.ID, s)
		}
	}
	if i, err := e.SetLife(t.Context(), longer.ID, sandbox.Life{TTL: time.Hour}); err != nil || !i.Life.Deadline.Equal(c.Now().Add(time.Hour)) {
		t.Errorf("extended: %+v, %v", i.Life, err)
	}
	h.Close(e) // the deadlines pass while there is no daemon
	c.Pass(2 * time.Minute)
	e = h.Open()
	for _, w := range []struct {
		i    sandbox.Info
		want sandbox.Status
	}{{dies, ""}, {laid, ""}, {sleeps, sandbox.StatusPaused}, {stays, sandbox.StatusRunning}, {longer, sandbox.StatusRunning}} {
		if s := enginefake.StatusOf(h, e, w.i.ID); s != w.want {
			t.Errorf("%s is %q, want %q", w.i.ID, s, w.want)
		}
	}
	// After the resume it has the full time again.
	i := h.Resume(e, sleeps.ID)
	if !i.Life.Deadline.Equal(c.Now().Add(time.Hour)) {
		t.Errorf("its life is %+v at %s", i.Life, c.Now())
	}
	if s := enginefake.StatusOf(h, e, sleeps.ID); s != sandbox.StatusRunning {
		t.Errorf("it is %q", s)
	}
}

// Deadlines follow changes of the wall clock; idle times do not.
func TestAClockThatJumps(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	soon := h.ForkFor(e, sandbox.Life{TTL: 30 * time.Minute})
	late := h.ForkFor(e, sandbox.Life{TTL: 2 * time.Hour})
	idle := h.ForkFor(e, sandbox.Life{Idle: 30 * time.Minute})
	c.Set(-time.Hour, 0)
	c.Pass(29 * time.Minute)
	for _, i := range []sandbox.Info{soon, late, idle} {
		if s := enginefake.StatusOf(h, e, i.ID); s != sandbox.StatusRunning {
			t.Errorf("%s is %q, an hour back", i.ID, s)
		}
	}
	c.Set(time.Hour, 0) // it is correct again
	c.Set(time.Hour, 0)
	for _, w := range []struct {
		i    sandbox.Info
		want sandbox.Status
	}{{soon, ""}, {late, sandbox.StatusRunning}, {idle, sandbox.StatusRunning}} {
		if s := enginefake.StatusOf(h, e, w.i.ID); s != w.want {
			t.Errorf("%s is %q an hour ahead, want %q", w.i.ID, s, w.want)
		}
	}
	c.Pass(time.Minute)
	if s := enginefake.StatusOf(h, e, idle.ID); s != "" {
		t.Errorf("the idle one is %q", s)
	}
}

// An open stream keeps a sandbox from being idle, and each call restarts the idle time.
func TestIdleness(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	sb := h.ForkFor(e, sandbox.Life{Idle: time.Minute, AtEnd: sandbox.AtEndPause, AutoResume: true})
	conn, err := e.DialAgent(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.Pass(time.Hour)
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("with an open stream it is %q", s)
	}
	conn.Close()
	c.Pass(59 * time.Second)
	h.Eval(e, sb.ID, "index")
	c.Pass(59 * time.Second)
	for _, i := range e.List() {
		if i.Unused != 59*time.Second {
			t.Errorf("it is unused for %s", i.Unused)
		}
	}
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("in time it is %q", s)
	}
	c.Pass(time.Second)
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusPaused {
		t.Errorf("idle it is %q", s)
	}
	h.Eval(e, sb.ID, "index") // this wakes it
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("woken it is %q", s)
	}
	// Used after it was found idle: it is not paused.
	_, err = e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{IdleFor: time.Minute})
	enginefake.WantError(t, err, sandbox.ErrConflict, "in use")
	h.Eval(e, sb.ID, "index")
}

// A sandbox that cannot be paused when due keeps running, reports the reason, and is retried.
func TestAnIdleSandboxThatCannotBePaused(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	sb := h.ForkFor(e, sandbox.Life{TTL: time.Minute, AtEnd: sandbox.AtEndPause})
	h.Fault("capture-full", 1)
	c.Pass(time.Minute)
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusRunning {
		t.Errorf("it is %q", s)
	}
	i := enginefake.MustGet(t, e, sb.ID)
	if !strings.Contains(i.Warning, "no space left") {
		t.Errorf("the warning is %q", i.Warning)
	}
	h.Eval(e, sb.ID, "index")
	c.Pass(30 * time.Second)
	if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusPaused {
		t.Errorf("later it is %q", s)
	}
	if i := enginefake.MustGet(t, e, sb.ID); i.Warning != "" {
		t.Errorf("the warning is %q", i.Warning)
	}
}

// A sandbox set to keep only its disk does so at its deadline and when idle.
func TestAnEndThatKeepsTheDiskAlone(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	made := h.Disky(e, 2)
	for i, l := range []sandbox.Life{{TTL: time.Minute}, {Idle: time.Minute}} {
		l.AtEnd, l.FilesystemOnly = sandbox.AtEndPause, true
		if _, err := e.SetLife(t.Context(), made[i].ID, l); err != nil {
			t.Fatal(err)
		}
	}
	h.Close(e) // the setting outlives the daemon
	e = h.Open()
	c.Pass(time.Minute)
	for _, sb := range made {
		if s := enginefake.StatusOf(h, e, sb.ID); s != sandbox.StatusPaused {
			t.Errorf("at its end it is %q", s)
		}
		if i := enginefake.MustGet(t, e, sb.ID); !i.Cold || i.PausedIn != "" {
			t.Errorf("paused it is %+v", i)
		}
		if i := h.Resume(e, sb.ID); !i.Life.FilesystemOnly {
			t.Errorf("its life is %+v", i.Life)
		}
	}
}

func TestLivesThatAreRefused(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	for _, l := range []sandbox.Life{
		{TTL: -1}, {TTL: time.Millisecond}, {Idle: -1}, {Idle: sandbox.MaxLife + 1}, {TTL: sandbox.MaxLife + 1}, {AtEnd: "sleep"},
		{AtEnd: sandbox.AtEndKill, FilesystemOnly: true}, {FilesystemOnly: true},
		{Deadline: c.Now()}, {Deadline: c.Now().Add(2 * sandbox.MaxLife)},
	} {
		_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Life: l})
		enginefake.WantError(t, err, sandbox.ErrInvalid)
	}
	sb := h.ForkFor(e, sandbox.Life{Deadline: c.Now().Add(time.Hour)})
	if sb.Life.TTL != time.Hour {
		t.Errorf("%+v", sb.Life)
	}
	_, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{TTL: 1})
	enginefake.WantError(t, err, sandbox.ErrInvalid)
	_, err = e.SetLife(t.Context(), "sb-none", sandbox.Life{})
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	// For a paused sandbox, it is stored in its record.
	h.Pause(e, sb.ID)
	if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{Idle: time.Hour}); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	e = h.Open()
	if l := enginefake.MustGet(t, e, sb.ID).Life; l != (sandbox.Life{Idle: time.Hour, AtEnd: sandbox.AtEndKill}) {
		t.Errorf("%+v", l)
	}
	if _, err := os.Stat(filepath.Join(h.Cfg.StoreDir, "paused", sb.ID+".json")); err != nil {
		t.Error(err)
	}
}
