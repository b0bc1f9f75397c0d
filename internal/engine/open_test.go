package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

func TestSandboxesOutliveTheDaemon(t *testing.T) {
	h := enginefake.NewHost(t)
	first := h.Open()
	h.Snapshot(first, "a")
	if err := first.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	sbs := h.Fork(first, "a", 4)
	if err := unix.Kill(sbs[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure", enginefake.Failed(first, sbs[0].ID))
	h.Close(first)
	for name, err := range map[string]error{
		"fork": enginefake.ErrorOf(first.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})), "kill": first.Kill(t.Context(), sbs[1].ID),
		"ping": enginefake.ErrorOf(first.Ping(t.Context(), sbs[1].ID)), "create": enginefake.ErrorOf(first.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny"}, nil)),
	} {
		if err == nil {
			t.Errorf("%s of a closed engine succeeds", name)
		}
	}
	// One dies while there is no daemon, and something half-made is left.
	if err := unix.Kill(sbs[1].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(h.Cfg.RunDir, "vm", "v00000099")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(half, vmproc.Journal), []byte("{"), 0o600)

	e := h.Open()
	if l := e.List(); len(l) != 4 {
		t.Fatalf("adopted: %+v", l)
	}
	for i, want := range []string{"signal: killed", "did not outlive"} {
		info, err := e.Get(sbs[i].ID)
		if err != nil || info.Status != sandbox.StatusFailed || info.PID != 0 || !strings.Contains(info.Reason, want) {
			t.Errorf("%+v, %v; want the reason %q", info, err, want)
		}
	}
	for _, b := range sbs[2:] {
		got, err := e.Get(b.ID)
		if err != nil || got.Status != sandbox.StatusRunning || got.PID != b.PID || !got.CreatedAt.Equal(b.CreatedAt) || got.Index != b.Index {
			t.Errorf("got %+v, %v; want %+v", got, err, b)
		}
		if id := h.Eval(e, b.ID, "sandbox_id"); id != b.ID {
			t.Errorf("it says it is %s", id)
		}
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("what was half-made is still there")
	}
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}), sandbox.ErrConflict, sbs[2].ID)
	if err := unix.Kill(sbs[2].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure of an adopted one", enginefake.Failed(e, sbs[2].ID))
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.SetPool(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	h.Empty()
}

func TestTheDaemonMayEndItsVMs(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.KillOnClose = true
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fork(e, "a", 2)
	h.Close(e)
	h.Empty()
}

func TestCloseLetsRequestsFinishAndThenCutsThemOff(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	h.Fault("exec-hangs", 1)
	got := make(chan error, 1)
	go func() {
		_, err := e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"hang"}})
		got <- err
	}()
	enginefake.Eventually(t, "the program to run", h.UsedUp("exec-hangs"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("close does not say that it cut off a request")
	}
	enginefake.WantError(t, <-got, sandbox.ErrClosing)
}

func TestOnlyOneEngineAtATime(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Open()
	_, err := engine.Open(t.Context(), h.Cfg)
	enginefake.WantError(t, err, sandbox.ErrConflict, "another daemon uses "+h.Cfg.StoreDir)
}

func TestConfigsThatCannotWork(t *testing.T) {
	h := enginefake.NewHost(t)
	for name, change := range map[string]func(*engine.Config){
		"relative run directory":  func(c *engine.Config) { c.RunDir = "run" },
		"run directory too long":  func(c *engine.Config) { c.RunDir = "/" + strings.Repeat("x", 90) },
		"no VMM":                  func(c *engine.Config) { c.VMMBinary = "" },
		"KVM cannot be opened":    func(c *engine.Config) { c.OpenKVM = func() (*os.File, error) { return nil, fmt.Errorf("no KVM") } },
		"no images":               func(c *engine.Config) { c.Images = nil },
		"store directory is file": func(c *engine.Config) { c.StoreDir = "/dev/null" },
	} {
		t.Run(name, func(t *testing.T) {
			c := h.Cfg
			change(&c)
			if e, err := engine.Open(t.Context(), c); err == nil {
				h.Close(e)
				t.Error("it opens")
			}
		})
	}
}
