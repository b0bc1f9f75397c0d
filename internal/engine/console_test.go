package engine

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// records keeps log records at Warn level, by message.
type records struct {
	slog.Handler
	mu   sync.Mutex // guards the fields below
	seen []slog.Record
}

func (r *records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, rec)
	return nil
}

// failures returns the attributes of the log records of failed sandboxes.
func (r *records) failures() (all []map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.seen {
		if rec.Message != "sandbox failed" {
			continue
		}
		attrs := map[string]string{}
		rec.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
		all = append(all, attrs)
	}
	return all
}

func (h *host) log() *records {
	r := &records{}
	h.cfg.Logger = slog.New(r)
	return r
}

const fakePanic = "the guest's kernel panicked: Fatal exception, after BUG: kernel NULL pointer dereference, address: 0"

// wantOneFailure checks that a sandbox's end was logged once, with all details.
func wantOneFailure(t *testing.T, log *records, id, reason, console string) {
	t.Helper()
	all := log.failures()
	if len(all) != 1 {
		t.Fatalf("%d records of failures: %v", len(all), all)
	}
	got := all[0]
	if age, err := time.ParseDuration(got["age"]); err != nil || age <= 0 {
		t.Errorf("age %q", got["age"])
	}
	if got["sandbox"] != id || got["snapshot"] != "a" || !strings.Contains(got["reason"], reason) || !strings.Contains(got["console"], console) || strings.Contains(got["console"], "\x1b") {
		t.Errorf("logged is %q", got)
	}
}

// A panic can be understood from the log after the sandbox is gone.
func TestTheLogTellsHowASandboxFailed(t *testing.T) {
	h := newHost(t)
	log := h.log()
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.fork(e, "a", 2)
	_, err := e.Eval(t.Context(), sbs[0].ID, sandbox.EvalRequest{Code: "panic"})
	wantError(t, err, sandbox.ErrGuestGone)
	eventually(t, "failure", failed(e, sbs[0].ID))
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantOneFailure(t, log, sbs[0].ID, fakePanic, "Kernel panic - not syncing")
}

// A client may kill a sandbox because it just failed, before the daemon notices the failure. The
// failure is logged all the same.
func TestWhatIsKilledWhileItFailsIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		fail  func(e *Engine, b sandbox.Info)
		want  string
	}{
		"its process has ended":        {"", func(_ *Engine, b sandbox.Info) { _ = unix.Kill(b.PID, unix.SIGKILL) }, "signal: killed"},
		"its process has yet to end":   {"linger", panicked, fakePanic},
		"its VM has panicked and gone": {"", panicked, fakePanic},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			log := h.log()
			e := h.open()
			h.snapshot(e, "a")
			sb := h.fork(e, "a", 1)[0]
			if c.fault != "" {
				h.fault(c.fault, 1)
			}
			b, m, err := e.sandboxes.Running(sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			release := b.LockFiles() // its failure waits here, and finds that it is being killed
			c.fail(e, sb)
			if c.fault == "" {
				<-m.Proc.Done()
			} else {
				eventually(t, "its last word", h.usedUp(c.fault))
				eventually(t, "the daemon to hear it", func() bool { return m.Proc.Exit().Kind != vmm.ExitKilled })
			}
			killed := make(chan error, 1)
			go func() { killed <- e.Kill(t.Context(), sb.ID) }()
			eventually(t, "beginning of the kill", func() bool { _, err := e.Get(sb.ID); return err != nil })
			release()
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			wantOneFailure(t, log, sb.ID, c.want, "")
			h.close(e)
			wantOneFailure(t, log, sb.ID, c.want, "")
		})
	}
}

// panicked requests a panic. The call returns only when the VM is gone.
func panicked(e *Engine, b sandbox.Info) {
	go func() { _, _ = e.Eval(context.Background(), b.ID, sandbox.EvalRequest{Code: "panic"}) }()
}

// A sandbox that is killed while it runs has not failed.
func TestAKillIsNoFailure(t *testing.T) {
	h := newHost(t)
	log := h.log()
	e := h.open()
	h.snapshot(e, "a")
	for _, b := range h.fork(e, "a", 3) {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	h.close(e)
	if all := log.failures(); len(all) != 0 {
		t.Errorf("logged: %v", all)
	}
}

// A sandbox that died between two daemons is logged by the next one.
func TestTheNextDaemonLogsWhatDiedMeanwhile(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.fork(e, "a", 1)[0]
	h.close(e)
	if err := unix.Kill(sb.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	log := h.log()
	h.open()
	wantOneFailure(t, log, sb.ID, "did not outlive", "")
}

// A child that panics during its identity is not listed: only the error and the log report it.
func TestAChildThatPanicsOverItsIdentity(t *testing.T) {
	h := newHost(t)
	log := h.log()
	e := h.open()
	h.snapshot(e, "a")
	h.fault("identity-die", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Children[0].Err, sandbox.ErrGuestGone, "identity of child 1: ", "the guest's kernel panicked: out of luck")
	wantOneFailure(t, log, log.failures()[0]["sandbox"], "panicked: out of luck", "Kernel panic - not syncing: out of luck")
}
