package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// usedUp returns a function that reports whether a VM took a token of that name.
func (h *host) usedUp(name string) func() bool {
	return func() bool {
		left, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "fake", name+".*"))
		return len(left) == 0
	}
}

func failed(e *Engine, id string) func() bool {
	return func() bool { i, err := e.Get(id); return err == nil && i.Status == sandbox.StatusFailed }
}

func TestAVMThatEndsByItselfIsFailedWithTheReason(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.fork(e, "a", 3)
	if err := unix.Kill(sbs[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure of the killed one", failed(e, sbs[0].ID))
	_, err := e.Eval(t.Context(), sbs[1].ID, sandbox.EvalRequest{Code: "poweroff"})
	wantError(t, err, sandbox.ErrGuestGone, sbs[1].ID, "powered off")
	eventually(t, "failure of the one that powered off", failed(e, sbs[1].ID))

	for i, want := range []string{"signal: killed", "powered off"} {
		info, err := e.Get(sbs[i].ID)
		if err != nil || !strings.Contains(info.Reason, want) || info.PID != 0 {
			t.Errorf("pid %d, reason %q, want none, %q", info.PID, info.Reason, want)
		}
		_, err = e.Ping(t.Context(), sbs[i].ID)
		wantError(t, err, sandbox.ErrGuestGone, want)
		_, err = e.Memory(sbs[i].ID)
		wantError(t, err, sandbox.ErrGuestGone)
		c, err := e.Console(sbs[i].ID)
		if err != nil {
			t.Errorf("console of a failed one: %v", err)
		} else {
			c.Close()
		}
		if err := e.Kill(t.Context(), sbs[i].ID); err != nil {
			t.Error(err)
		}
	}
	if p, err := e.Ping(t.Context(), sbs[2].ID); err != nil || p.NumpyVersion != "2.0" || p.PID != 1 {
		t.Errorf("the other one: %+v, %v", p, err)
	}
	if l := e.List(); len(l) != 1 {
		t.Errorf("listed: %v", l)
	}
}

func TestFailedSandboxesExpire(t *testing.T) {
	h := newHost(t)
	h.cfg.FailedKeep = 50 * time.Millisecond
	e := h.open()
	h.snapshot(e, "a")
	sb := h.fork(e, "a", 1)[0]
	if err := unix.Kill(sb.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the list", func() bool { return len(e.List()) == 0 })
	h.empty()
}

func TestTwoClientsKillTheSameSandbox(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.fork(e, "a", 1)[0]
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			errs[i] = e.Kill(t.Context(), sb.ID)
			// At every return it is gone.
			if unix.Kill(sb.PID, 0) == nil {
				t.Errorf("caller %d returned before the process was gone", i)
			}
		})
	}
	wg.Wait()
	ok := 0
	for _, err := range errs {
		if err == nil {
			ok++
			continue
		}
		wantError(t, err, sandbox.ErrNotFound)
	}
	if ok == 0 {
		t.Error("nobody killed it")
	}
	wantError(t, e.Kill(t.Context(), sb.ID), sandbox.ErrNotFound, sb.ID)
	_, err := e.Get(sb.ID)
	wantError(t, err, sandbox.ErrNotFound)
	h.empty()
}

func TestProgramsRun(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	id := h.fork(e, "a", 1)[0].ID
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
	wantError(t, err, sandbox.ErrInvalid, "no such program: nothing")
	_, err = e.Exec(t.Context(), id, sandbox.ExecRequest{})
	wantError(t, err, sandbox.ErrInvalid)
	_, err = e.Exec(t.Context(), "sb-0-0001", sandbox.ExecRequest{Args: []string{"echo"}})
	wantError(t, err, sandbox.ErrNotFound)
}

func TestCodeIsEvaluated(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	id := h.fork(e, "a", 1)[0].ID
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
	wantError(t, err, sandbox.ErrTimeout, "after 1s")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Eval(ctx, id, sandbox.EvalRequest{Code: "hang"})
	wantError(t, err, sandbox.ErrTimeout)
}

func TestTheAgentIsReachedRaw(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	id := h.fork(e, "a", 1)[0].ID
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

func TestMemoryOfASandbox(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	id := h.fork(e, "a", 1)[0].ID
	m, err := e.Memory(id)
	if err != nil {
		t.Fatal(err)
	}
	if m.GuestDirtyKiB != 20 || m.VMMAnonKiB == 0 || m.PSSKiB < m.VMMAnonKiB {
		t.Errorf("got %+v, want 20 KiB of guest pages", m)
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if m, err = e.Memory(id); err != nil || m.GuestDirtyKiB != 20 {
		t.Errorf("after the snapshot's deletion: %+v, %v", m, err)
	}
}

func TestSandboxesOutliveTheDaemon(t *testing.T) {
	h := newHost(t)
	first := h.open()
	h.snapshot(first, "a")
	if err := first.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	sbs := h.fork(first, "a", 4)
	if err := unix.Kill(sbs[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure", failed(first, sbs[0].ID))
	h.close(first)
	for name, err := range map[string]error{
		"fork": second(first.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})), "kill": first.Kill(t.Context(), sbs[1].ID),
		"ping": second(first.Ping(t.Context(), sbs[1].ID)), "create": second(first.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny"}, nil)),
	} {
		if err == nil {
			t.Errorf("%s of a closed engine succeeds", name)
		}
	}
	// One dies while there is no daemon, and something half-made is left.
	if err := unix.Kill(sbs[1].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(h.cfg.RunDir, "vm", "v00000099")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(half, vmproc.Journal), []byte("{"), 0o600)

	e := h.open()
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
		if id := h.eval(e, b.ID, "sandbox_id"); id != b.ID {
			t.Errorf("it says it is %s", id)
		}
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("what was half-made is still there")
	}
	wantError(t, e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}), sandbox.ErrConflict, sbs[2].ID)
	if err := unix.Kill(sbs[2].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure of an adopted one", failed(e, sbs[2].ID))
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.SetPool(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	h.empty()
}

func second[T any](_ T, err error) error { return err }

func TestHalfMadeChildrenOfADeadDaemonAreCleared(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.fork(e, "a", 1)[0]
	h.close(e)
	// As if the daemon had died before the identity was confirmed.
	b := e.sandboxes.Lookup(sb.ID)
	if err := os.Remove(filepath.Join(b.Dir(), vmproc.SandboxJournal)); err != nil {
		t.Fatal(err)
	}
	e = h.open()
	if l := e.List(); len(l) != 0 {
		t.Errorf("listed: %v", l)
	}
	h.empty()
	eventually(t, "end of its process", func() bool { return unix.Kill(sb.PID, 0) != nil })
}

func TestTheDaemonMayEndItsVMs(t *testing.T) {
	h := newHost(t)
	h.cfg.KillOnClose = true
	e := h.open()
	h.snapshot(e, "a")
	h.fork(e, "a", 2)
	h.close(e)
	h.empty()
}

func TestCloseLetsRequestsFinishAndThenCutsThemOff(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	id := h.fork(e, "a", 1)[0].ID
	h.fault("exec-hangs", 1)
	got := make(chan error, 1)
	go func() {
		_, err := e.Exec(t.Context(), id, sandbox.ExecRequest{Args: []string{"hang"}})
		got <- err
	}()
	eventually(t, "the program to run", h.usedUp("exec-hangs"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("close does not say that it cut off a request")
	}
	wantError(t, <-got, sandbox.ErrClosing)
}

func TestOnlyOneEngineAtATime(t *testing.T) {
	h := newHost(t)
	h.open()
	_, err := Open(t.Context(), h.cfg)
	wantError(t, err, sandbox.ErrConflict, "another daemon uses "+h.cfg.StoreDir)
}

func TestConfigsThatCannotWork(t *testing.T) {
	h := newHost(t)
	for name, change := range map[string]func(*Config){
		"relative run directory":  func(c *Config) { c.RunDir = "run" },
		"run directory too long":  func(c *Config) { c.RunDir = "/" + strings.Repeat("x", 90) },
		"no VMM":                  func(c *Config) { c.VMMBinary = "" },
		"KVM cannot be opened":    func(c *Config) { c.OpenKVM = func() (*os.File, error) { return nil, fmt.Errorf("no KVM") } },
		"no images":               func(c *Config) { c.Images = nil },
		"store directory is file": func(c *Config) { c.StoreDir = "/dev/null" },
	} {
		t.Run(name, func(t *testing.T) {
			c := h.cfg
			change(&c)
			if e, err := Open(t.Context(), c); err == nil {
				h.close(e)
				t.Error("it opens")
			}
		})
	}
}

// A followed console begins at the requested line, and ends with its VM.
func TestAConsoleIsFollowed(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.fork(e, "a", 1)[0]
	b, _, err := e.sandboxes.Find(sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	console := filepath.Join(b.Dir(), client.ConsoleLog)
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
	wantError(t, e.FollowConsole(t.Context(), sb.ID, -1, nil), sandbox.ErrNotFound, sb.ID)
	other := h.fork(e, "a", 1)[0].ID
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := e.FollowConsole(ctx, other, -1, func([]byte) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its reader leaves: %v", err)
	}
}
