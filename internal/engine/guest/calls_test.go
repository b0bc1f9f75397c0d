package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

func TestProgramsRun(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	r, err := e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"echo", "hello", "you"}})
	if err != nil || string(r.Stdout) != "hello you" || r.ExitCode != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	r, err = e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"segv"}})
	if err != nil || r.ExitCode != 128+int(syscall.SIGSEGV) {
		t.Errorf("got %+v, %v", r, err)
	}
	r, err = e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"hang"}, Timeout: 50 * time.Millisecond})
	if err != nil || !r.TimedOut || r.ExitCode != 124 {
		t.Errorf("got %+v, %v", r, err)
	}
	_, err = e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"nothing"}})
	enginefake.WantError(t, err, sandbox.ErrInvalid, "no such program: nothing")
	_, err = e.Exec(t.Context(), id, sandbox.ExecRequest{})
	enginefake.WantError(t, err, sandbox.ErrInvalid)
	_, err = e.Exec(t.Context(), "sb-0-0001", sandbox.ExecRequest{Args: []string{"echo"}})
	enginefake.WantError(t, err, sandbox.ErrNotFound)
}

func TestCodeIsEvaluated(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	if r, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "raise"}); err != nil || r.Error != "Traceback: ValueError" {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "flood"}); err != nil || r.DroppedBytes != 7 || r.Stdout != "begin" {
		t.Errorf("output that was cut: %+v, %v", r, err)
	}
	if r, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "exit"}); err != nil || r.ExitCode != 3 || r.Stdout != "\xff" || r.Stderr != "text" || r.Error != "" {
		t.Errorf("exit: %+v, %v", r, err)
	}
	if r, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "index", Measure: true}); err != nil || r.Guest != 7 {
		t.Errorf("measured: %+v, %v", r, err)
	}
	_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "slow", Timeout: time.Second})
	enginefake.WantError(t, err, sandbox.ErrTimeout, "after 1s")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Eval(ctx, id, sandbox.EvalRequest{Code: "hang"})
	enginefake.WantError(t, err, sandbox.ErrTimeout)
}

func TestTheAgentIsReachedRaw(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	c, err := e.DialAgent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req, _ := http.NewRequest(http.MethodGet, "http://agent/nothing", nil)
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 404" {
		t.Errorf("got %q, %v", b, err)
	}
}

// A followed console begins at the requested line, and ends with its VM.
func TestAConsoleIsFollowed(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	dir, _ := h.Journal(sb.ID)
	console := filepath.Join(dir, client.ConsoleLog)
	if err := os.WriteFile(console, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- e.FollowConsole(t.Context(), sb.ID, 1, func(b []byte) error { said <- string(b); return nil })
	}()
	if got := <-said; got != "two\n" {
		t.Errorf("it begins with %q", got)
	}
	f, err := os.OpenFile(console, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "three")
	if got := <-said; got != "three\n" {
		t.Errorf("it goes on with %q", got)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	enginefake.WantError(t, e.FollowConsole(t.Context(), sb.ID, -1, nil), sandbox.ErrNotFound, sb.ID)
	other := h.Fork(e, "a", 1)[0].ID
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := e.FollowConsole(ctx, other, -1, func([]byte) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its reader leaves: %v", err)
	}
}
