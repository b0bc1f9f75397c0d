package engine

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// fill makes a sandbox's disk run out of space, in a call that ends with that error.
func (h *host) fill(e *Engine, id string) {
	h.t.Helper()
	_, err := e.Eval(h.t.Context(), id, sandbox.EvalRequest{Code: "fill"})
	wantError(h.t, err, sandbox.ErrNoSpace, id, "paused: no room on the host for its disk", "disk 1")
}

// room ends a lack of disk space.
func (h *host) room(e *Engine, id string) {
	h.t.Helper()
	b, _, err := e.sandboxes.Find(id)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Dir(), roomFile), nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, "sandbox that goes on", func() bool { i, err := e.Get(id); return err == nil && i.Status == sandbox.StatusRunning })
}

// A sandbox without space for its disk is listed as paused with the reason. All requests that need
// it fail with no_space until it resumes by itself, also under the next daemon.
func TestASandboxIsPausedForWantOfRoom(t *testing.T) {
	for _, restart := range []bool{false, true} {
		h := newHost(t)
		told := h.listen()
		e := h.open()
		sbs := h.disky(e, 2)
		id := sbs[0].ID
		h.fill(e, id)
		eventually(t, "event of the stall", func() bool {
			e.Watch.Look(t.Context())
			return strings.Contains(told.of(id), sandbox.EventStalled)
		})
		if restart {
			h.close(e)
			e = h.open()
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
			"exec": errExec, "eval": errEval, "ping": errPing, "dial": errDial, "port": errPort, "branch": h.branch(e, id, "x"),
		} {
			var p *sandbox.Error
			if !errors.Is(err, sandbox.ErrNoSpace) || !errors.As(err, &p) || p.Reason() != sandbox.ReasonDiskNoRoom || !strings.Contains(err.Error(), "paused") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := h.stored(); got != "d" {
			t.Errorf("stored are %q", got)
		}
		h.eval(e, sbs[1].ID, "index") // its sibling is not affected
		if err := e.DeleteSnapshot(ctx, "d", sandbox.DeleteOptions{}); err == nil {
			t.Error("the snapshot that it came from is gone")
		}
		h.room(e, id)
		eventually(t, "event of its end", func() bool {
			e.Watch.Look(t.Context())
			return strings.Contains(told.of(id), sandbox.EventContinued)
		})
		h.eval(e, id, "index")
		if err := h.branch(e, id, "y"); err != nil {
			t.Error(err)
		}
		h.fill(e, id)
		if err := e.Kill(ctx, id); err != nil { // a kill always works
			t.Error(err)
		}
		h.close(e)
	}
}

// A short lack of space ends no calls. A lasting one ends the running calls and breaks a stream
// into the guest.
func TestCallsUnderWayForWantOfRoom(t *testing.T) {
	h := newHost(t)
	e := h.open()
	id := h.disky(e, 1)[0].ID
	conn, err := e.DialAgent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hanging := make(chan error, 1)
	go func() {
		_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "hang"})
		hanging <- err
	}()
	_, m, err := e.sandboxes.Running(id)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "call", func() bool { return m.Calls() == 2 })
	seq := 0
	say := func(full string) {
		seq++
		m.NoteHealth(vmm.Health{Seq: seq, Full: full})
	}
	say("a short lack")
	say("")
	select {
	case err := <-hanging:
		t.Fatalf("the call has ended: %v", err)
	case <-time.After(vmproc.StallGrace + 200*time.Millisecond):
	}
	say("a long lack")
	wantError(t, <-hanging, sandbox.ErrNoSpace, "paused: no room", "a long lack")
	_, err = io.ReadAll(conn)
	wantError(t, err, sandbox.ErrNoSpace, "paused: no room", "a long lack")
	say("")
	if i, err := e.Get(id); err != nil || i.Status != sandbox.StatusRunning {
		t.Errorf("it does not run again: %+v, %v", i, err)
	}
	if _, err := e.Ping(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// An operation in progress fails immediately for lack of space, before its time limit.
func TestNoRoomForWhatIsBeingMade(t *testing.T) {
	h := newHost(t)
	e := h.open()
	id := h.disky(e, 1)[0].ID
	h.fault("identity-full", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1})
	if err == nil {
		err = r.Children[0].Err
	}
	wantError(t, err, sandbox.ErrNoSpace, "paused: no room")
	h.fault("warm-full", 1)
	_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "n", Image: "disky"}, nil)
	wantError(t, err, sandbox.ErrNoSpace, "create snapshot n", "no room")
	h.fault("capture-full", 1) // between the check and the capture
	wantError(t, h.branch(e, id, "x"), sandbox.ErrNoSpace, "waits for room")
	if got := h.stored(); got != "d" {
		t.Errorf("stored are %q", got)
	}
}

// A disk that has lost writes is reported with its sandbox everywhere, and branched only by force.
func TestADiskThatHasLostWrites(t *testing.T) {
	h := newHost(t)
	var log lockedBuffer
	h.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e := h.open()
	id := h.disky(e, 1)[0].ID
	h.eval(e, id, "lose")
	warned := func() bool {
		i, err := e.Get(id)
		return err == nil && i.Status == sandbox.StatusRunning && strings.Contains(i.Warning, "lost writes") && strings.Contains(i.Warning, "input/output error")
	}
	eventually(t, "warning", warned)
	eventually(t, "line in the log", func() bool { return strings.Contains(log.String(), "has lost writes") })
	h.close(e)
	e = h.open()
	if !warned() {
		t.Errorf("the next daemon says nothing: %+v", e.List())
	}
	err := h.branch(e, id, "x")
	wantError(t, err, sandbox.ErrConflict, "cannot be branched", "lost writes")
	var p *sandbox.Error
	if !errors.As(err, &p) || p.Reason() != sandbox.ReasonDiskLostWrites {
		t.Errorf("the reason is not told: %v", err)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "x", Force: true}); err != nil {
		t.Error(err)
	}
	h.fault("capture-lost", 1)
	child := h.fork(e, "x", 1)[0]
	wantError(t, h.branch(e, child.ID, "y"), sandbox.ErrConflict, "lost writes") // between the check and the capture
	h.eval(e, id, "index")
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
