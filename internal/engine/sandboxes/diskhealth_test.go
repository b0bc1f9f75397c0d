package sandboxes_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// room ends a lack of disk space.
func room(h *enginefake.Host, e *engine.Engine, id string) {
	h.T.Helper()
	dir, _ := h.Journal(id)
	if err := os.WriteFile(filepath.Join(dir, enginefake.RoomFile), nil, 0o600); err != nil {
		h.T.Fatal(err)
	}
	enginefake.Eventually(h.T, "sandbox that goes on", func() bool { i, err := e.Get(id); return err == nil && i.Status == sandbox.StatusRunning })
}

// A sandbox without space for its disk is listed as paused with the reason. All requests that need
// it fail with no_space until it resumes by itself, also under the next daemon.
func TestASandboxIsPausedForWantOfRoom(t *testing.T) {
	for _, restart := range []bool{false, true} {
		h := enginefake.NewHost(t)
		told := enginefake.Listen(h)
		e := h.Open()
		sbs := h.Disky(e, 2)
		id := sbs[0].ID
		enginefake.Fill(h, e, id)
		enginefake.Eventually(t, "event of the stall", func() bool {
			e.Watch.Look(t.Context())
			return strings.Contains(told.Of(id), sandbox.EventStalled)
		})
		if restart {
			h.Close(e)
			e = h.Open()
		}
		for _, i := range e.List() {
			if paused := i.ID == id; (i.Status == sandbox.StatusStalled) != paused || strings.HasPrefix(i.Reason, "paused: no room") != paused || i.PID == 0 {
				t.Errorf("listed is %+v", i)
			}
		}
		ctx := t.Context()
		_, errExec := e.Exec(ctx, id, sandbox.ExecRequest{Args: []string{"true"}})
		_, errEval := e.Eval(ctx, id, sandbox.EvalRequest{Code: "index"})
		_, errPing := e.Ping(ctx, id)
		_, errDial := e.DialAgent(ctx, id)
		_, errPort := e.DialPort(ctx, id, 80)
		for what, err := range map[string]error{
			"exec": errExec, "eval": errEval, "ping": errPing, "dial": errDial, "port": errPort, "branch": h.Branch(e, id, "x"),
		} {
			var p *sandbox.Error
			if !errors.Is(err, sandbox.ErrNoSpace) || !errors.As(err, &p) || p.Reason() != sandbox.ReasonDiskNoRoom || !strings.Contains(err.Error(), "paused") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := h.Stored(); got != "d" {
			t.Errorf("stored are %q", got)
		}
		h.Eval(e, sbs[1].ID, "index") // its sibling is not affected
		if err := e.DeleteSnapshot(ctx, "d", sandbox.DeleteOptions{}); err == nil {
			t.Error("the snapshot that it came from is gone")
		}
		room(h, e, id)
		enginefake.Eventually(t, "event of its end", func() bool {
			e.Watch.Look(t.Context())
			return strings.Contains(told.Of(id), sandbox.EventContinued)
		})
		h.Eval(e, id, "index")
		if err := h.Branch(e, id, "y"); err != nil {
			t.Error(err)
		}
		enginefake.Fill(h, e, id)
		if err := e.Kill(ctx, id); err != nil { // a kill always works
			t.Error(err)
		}
		h.Close(e)
	}
}

// An operation in progress fails immediately for lack of space, before its time limit.
func TestNoRoomForWhatIsBeingMade(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	id := h.Disky(e, 1)[0].ID
	h.Fault("identity-full", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1})
	if err == nil {
		err = r.Children[0].Err
	}
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "paused: no room")
	h.Fault("warm-full", 1)
	_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "n", Image: "disky"}, nil)
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "create snapshot n", "no room")
	h.Fault("capture-full", 1) // between the check and the capture
	enginefake.WantError(t, h.Branch(e, id, "x"), sandbox.ErrNoSpace, "waits for room")
	if got := h.Stored(); got != "d" {
		t.Errorf("stored are %q", got)
	}
}

// A disk that has lost writes is reported with its sandbox everywhere, and branched only by force.
func TestADiskThatHasLostWrites(t *testing.T) {
	h := enginefake.NewHost(t)
	var log enginefake.Log
	h.Cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e := h.Open()
	id := h.Disky(e, 1)[0].ID
	h.Eval(e, id, "lose")
	warned := func() bool {
		i, err := e.Get(id)
		return err == nil && i.Status == sandbox.StatusRunning && strings.Contains(i.Warning, "lost writes") && strings.Contains(i.Warning, "input/output error")
	}
	enginefake.Eventually(t, "warning", warned)
	enginefake.Eventually(t, "line in the log", func() bool { return strings.Contains(log.String(), "has lost writes") })
	h.Close(e)
	e = h.Open()
	if !warned() {
		t.Errorf("the next daemon says nothing: %+v", e.List())
	}
	err := h.Branch(e, id, "x")
	enginefake.WantError(t, err, sandbox.ErrConflict, "cannot be branched", "lost writes")
	var p *sandbox.Error
	if !errors.As(err, &p) || p.Reason() != sandbox.ReasonDiskLostWrites {
		t.Errorf("the reason is not told: %v", err)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "x", Force: true}); err != nil {
		t.Error(err)
	}
	h.Fault("capture-lost", 1)
	child := h.Fork(e, "x", 1)[0]
	enginefake.WantError(t, h.Branch(e, child.ID, "y"), sandbox.ErrConflict, "lost writes") // between the check and the capture
	h.Eval(e, id, "index")
}
