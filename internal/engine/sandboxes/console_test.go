package sandboxes_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
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
