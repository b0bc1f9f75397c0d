package drain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// host is a fake engine.
type host struct {
	mu     sync.Mutex
	list   []sandbox.Info
	fail   map[string]error
	asked  []string
	acts   []sandbox.Act
	now    time.Time
	during func() // called in each pause
}

func newHost(ids ...string) *host {
	h := &host{fail: map[string]error{}, now: time.Unix(1_800_000_000, 0)}
	for _, id := range ids {
		h.list = append(h.list, sandbox.Info{ID: id, Status: sandbox.StatusRunning, PID: 7})
	}
	return h
}

func (h *host) List() []sandbox.Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sandbox.Info(nil), h.list...)
}

func (h *host) Pause(_ context.Context, id string, _ sandbox.PauseOptions) (sandbox.Info, error) {
	if h.during != nil {
		h.during()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, id)
	if err := h.fail[id]; err != nil {
		return sandbox.Info{}, err
	}
	for i := range h.list {
		if h.list[i].ID == id {
			h.list[i].Status = sandbox.StatusPaused
		}
	}
	return sandbox.Info{}, nil
}

func (h *host) open(path string) *drain.Drain {
	return drain.Open(drain.Config{Path: path, List: h.List, Pause: h.Pause, Now: func() time.Time { return h.now },
		Acts: func(a sandbox.Act) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.acts = append(h.acts, a)
		}})
}

func start(t *testing.T, d *drain.Drain, m drain.Mode) {
	t.Helper()
	if err := d.Start(m, false); err != nil {
		t.Fatal(err)
	}
}

func TestADrainRefusesAndPauses(t *testing.T) {
	h := newHost("sb-2", "sb-1")
	d := h.open(filepath.Join(t.TempDir(), "drain.json"))
	leave, err := d.Enter()
	if err != nil {
		t.Fatal(err)
	}
	start(t, d, drain.ModePause)
	if _, err := d.Enter(); !errors.Is(err, sandbox.ErrDraining) {
		t.Errorf("a request is admitted: %v", err)
	}
	d.Look(t.Context())
	s := d.Status()
	if len(s.Left) != 0 || s.Paused != 2 || s.Coming != 1 || s.Empty() {
		t.Errorf("with a request in progress: %+v", s)
	}
	leave()
	leave() // counts once
	if s := d.Status(); s.Coming != 0 || !s.Empty() {
		t.Errorf("after it: %+v", s)
	}
	if len(h.acts) != 2 || h.acts[0].By != sandbox.ByDrain || h.acts[0].Err != nil {
		t.Errorf("acts are %+v", h.acts)
	}
	if err := d.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enter(); err != nil {
		t.Errorf("after the cancel: %v", err)
	}
}

func TestADrainThatWaitsPausesNothing(t *testing.T) {
	h := newHost("sb-1")
	d := h.open("")
	start(t, d, drain.ModeWait)
	d.Look(t.Context())
	if s := d.Status(); len(h.asked) != 0 || len(s.Left) != 1 || s.Empty() {
		t.Errorf("asked %v, status %+v", h.asked, s)
	}
	start(t, d, drain.ModePause) // the mode can be changed
	d.Look(t.Context())
	if !d.Status().Empty() {
		t.Errorf("status is %+v", d.Status())
	}
}

func TestASandboxThatCannotBePausedIsListed(t *testing.T) {
	h := newHost("sb-1", "sb-2")
	h.fail["sb-1"] = errors.New("its VMM is of an older forkd")
	d := h.open("")
	start(t, d, drain.ModePause)
	d.Look(t.Context())
	d.Look(t.Context()) // too early for another attempt
	s := d.Status()
	if len(s.Left) != 1 || s.Left[0].ID != "sb-1" || s.Left[0].Error != "its VMM is of an older forkd" || len(h.asked) != 2 {
		t.Errorf("asked %v, status %+v", h.asked, s)
	}
	h.now = h.now.Add(time.Minute)
	delete(h.fail, "sb-1")
	d.Look(t.Context())
	if s := d.Status(); !s.Empty() {
		t.Errorf("after another attempt: %+v", s)
	}
}

func TestACancelStopsFurtherPauses(t *testing.T) {
	h := newHost()
	for i := range 50 {
		h.list = append(h.list, sandbox.Info{ID: fmt.Sprintf("sb-%02d", i), Status: sandbox.StatusRunning})
	}
	d := h.open("")
	start(t, d, drain.ModePause)
	h.during = func() {
		if err := d.Cancel(); err != nil {
			t.Error(err)
		}
	}
	d.Look(t.Context())
	if n := len(h.asked); n == 0 || n > 2 {
		t.Errorf("%d sandboxes were paused, want at most those in progress", n)
	}
}

func TestABuildsSandboxIsWaitedFor(t *testing.T) {
	h := newHost("sb-1")
	d := h.open("")
	release := d.Spare("sb-1")
	start(t, d, drain.ModePause)
	d.Look(t.Context())
	if len(h.asked) != 0 {
		t.Fatal("the sandbox of a build was paused")
	}
	release()
	d.Look(t.Context())
	if len(h.asked) != 1 {
		t.Error("it is not paused after the build")
	}
}

func TestTheOrderOutlivesTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.json")
	h := newHost("sb-1")
	start(t, h.open(path), drain.ModePause)
	first := h.now.UTC()
	h.now = h.now.Add(time.Hour)
	d := h.open(path) // as after kill -9
	if _, err := d.Enter(); !errors.Is(err, sandbox.ErrDraining) {
		t.Errorf("a request is admitted: %v", err)
	}
	start(t, d, drain.ModePause) // idempotent
	if s := d.Status(); s.Order == nil || !s.Order.Since.Equal(first) {
		t.Errorf("status is %+v", s)
	}
	d.Look(t.Context())
	if !d.Status().Empty() {
		t.Error("the next daemon does not go on")
	}
	if err := d.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := d.Cancel(); err != nil {
		t.Errorf("a second cancel: %v", err)
	}
	if h.open(path).On() {
		t.Error("the drain is on after its cancel and a restart")
	}
}

func TestADamagedOrderRefusesAndTouchesNothing(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "cut off": `{"format":1,"mo`, "newer": `{"format":2,"mode":"pause"}`, "odd mode": `{"format":1,"mode":"kill"}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "drain.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			h := newHost("sb-1")
			d := h.open(path)
			d.Look(t.Context())
			if _, err := d.Enter(); !errors.Is(err, sandbox.ErrDraining) || len(h.asked) != 0 {
				t.Errorf("Enter: %v, paused %v", err, h.asked)
			}
			if err := d.Cancel(); err != nil || d.On() {
				t.Errorf("it cannot be cancelled: %v", err)
			}
		})
	}
}

func TestAnOrderThatCannotBeKeptIsRefused(t *testing.T) {
	h := newHost("sb-1")
	d := h.open(filepath.Join(t.TempDir(), "missing", "drain.json"))
	if err := d.Start(drain.ModePause, false); err == nil || d.On() {
		t.Errorf("Start: %v, on: %v", err, d.On())
	}
	if err := d.Start("kill", false); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("an unknown mode: %v", err)
	}
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"format":1,"mode":"wait","since":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"format":1,"mode":"pause","since":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "drain.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h := newHost()
		if d := h.open(path); !d.On() {
			t.Error("a file of any content must refuse new sandboxes")
		}
	})
}

func TestADrainUntilTheRestart(t *testing.T) {
	h := newHost("sb-1")
	path := filepath.Join(t.TempDir(), "drain.json")
	again := func(d *drain.Drain, forever bool) {
		t.Helper()
		if o := d.Status().Order; o == nil || o.UntilRestart == forever {
			t.Fatalf("the order is %+v", o)
		}
		if next := h.open(path); next.On() != forever {
			t.Errorf("after the restart a drain is on: %v, want %v", next.On(), forever)
		}
	}
	d := h.open(path)
	if err := d.Start(drain.ModeWait, true); err != nil {
		t.Fatal(err)
	}
	again(d, false)
	start(t, d, drain.ModePause)
	again(d, true)
	if err := d.Start(drain.ModePause, true); err != nil { // the order of an operator is not weakened
		t.Fatal(err)
	}
	again(d, true)
	if err := d.Cancel(); err != nil || h.open(path).On() {
		t.Errorf("Cancel: %v", err)
	}
}
