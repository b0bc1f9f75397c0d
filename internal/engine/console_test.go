package engine_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A panic can be understood from the log after the sandbox is gone.
func TestTheLogTellsHowASandboxFailed(t *testing.T) {
	h := enginefake.NewHost(t)
	log := enginefake.LogFailures(h)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 2)
	_, err := e.Eval(t.Context(), sbs[0].ID, sandbox.EvalRequest{Code: "panic"})
	enginefake.WantError(t, err, sandbox.ErrGuestGone)
	enginefake.Eventually(t, "failure", enginefake.Failed(e, sbs[0].ID))
	for _, b := range sbs {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	enginefake.WantOneFailure(t, log, sbs[0].ID, enginefake.PanicReason, "Kernel panic - not syncing")
}

// A client may kill a sandbox because it just failed, before the daemon notices the failure. The
// failure is logged all the same.
func TestWhatIsKilledWhileItFailsIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		fail  func(e *engine.Engine, b sandbox.Info)
		want  string
	}{
		"its process has ended":        {"", func(_ *engine.Engine, b sandbox.Info) { _ = unix.Kill(b.PID, unix.SIGKILL) }, "signal: killed"},
		"its process has yet to end":   {"linger", panicked, enginefake.PanicReason},
		"its VM has panicked and gone": {"", panicked, enginefake.PanicReason},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			log := enginefake.LogFailures(h)
			e := h.Open()
			h.Snapshot(e, "a")
			sb := h.Fork(e, "a", 1)[0]
			if c.fault != "" {
				h.Fault(c.fault, 1)
			}
			b, m, err := e.Table().Running(sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			release := b.LockFiles() // its failure waits here, and finds that it is being killed
			c.fail(e, sb)
			if c.fault == "" {
				<-m.Proc.Done()
			} else {
				enginefake.Eventually(t, "its last word", h.UsedUp(c.fault))
				enginefake.Eventually(t, "the daemon to hear it", func() bool { return m.Proc.Exit().Kind != vmm.ExitKilled })
			}
			killed := make(chan error, 1)
			go func() { killed <- e.Kill(t.Context(), sb.ID) }()
			enginefake.Eventually(t, "beginning of the kill", func() bool { _, err := e.Get(sb.ID); return err != nil })
			release()
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			enginefake.WantOneFailure(t, log, sb.ID, c.want, "")
			h.Close(e)
			enginefake.WantOneFailure(t, log, sb.ID, c.want, "")
		})
	}
}

// panicked requests a panic. The call returns only when the VM is gone.
func panicked(e *engine.Engine, b sandbox.Info) {
	go func() { _, _ = e.Eval(context.Background(), b.ID, sandbox.EvalRequest{Code: "panic"}) }()
}

// A sandbox that is killed while it runs has not failed.
func TestAKillIsNoFailure(t *testing.T) {
	h := enginefake.NewHost(t)
	log := enginefake.LogFailures(h)
	e := h.Open()
	h.Snapshot(e, "a")
	for _, b := range h.Fork(e, "a", 3) {
		if err := e.Kill(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	h.Close(e)
	if all := log.Failures(); len(all) != 0 {
		t.Errorf("logged: %v", all)
	}
}

// A sandbox that died between two daemons is logged by the next one.
func TestTheNextDaemonLogsWhatDiedMeanwhile(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	h.Close(e)
	if err := unix.Kill(sb.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	log := enginefake.LogFailures(h)
	h.Open()
	enginefake.WantOneFailure(t, log, sb.ID, "did not outlive", "")
}

// A child that panics during its identity is not listed: only the error and the log report it.
func TestAChildThatPanicsOverItsIdentity(t *testing.T) {
	h := enginefake.NewHost(t)
	log := enginefake.LogFailures(h)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("identity-die", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	enginefake.WantError(t, r.Children[0].Err, sandbox.ErrGuestGone, "identity of child 1: ", "the guest's kernel panicked: out of luck")
	enginefake.WantOneFailure(t, log, log.Failures()[0]["sandbox"], "panicked: out of luck", "Kernel panic - not syncing: out of luck")
}
