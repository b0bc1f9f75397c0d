package sandboxes_test

import (
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// duringAStep runs do while a pause or a resume is at a step, and returns its error when both are
// over.
func duringAStep(t *testing.T, step failpoint.Step, op, do func() error) error {
	t.Helper()
	at, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	defer failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			once.Do(func() {
				close(at)
				<-release
			})
		}
		return nil
	})()
	over, answer := make(chan error, 1), make(chan error, 1)
	go func() { over <- op() }()
	<-at
	go func() { answer <- do() }()
	select {
	case err := <-answer: // it did not wait
		close(release)
		<-over
		return err
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-over; err != nil {
		t.Error(err)
	}
	return <-answer
}

// Every call of a sandbox's guest during a transition waits for its end. A sandbox with automatic
// resume is then resumed, once.
func TestCallsWaitForATransition(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{AutoResume: true}); err != nil {
		t.Fatal(err)
	}
	dial := func() error {
		c, err := e.DialAgent(t.Context(), sb.ID)
		if err == nil {
			c.Close()
		}
		return err
	}
	pause := func() error { return enginefake.ErrorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})) }
	resume := func() error { return enginefake.ErrorOf(e.Resume(t.Context(), sb.ID)) }
	for name, do := range map[string]func() error{
		"exec": func() error {
			return enginefake.ErrorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"}))
		},
		"dial":    dial,
		"network": func() error { return enginefake.ErrorOf(e.Settle(t.Context(), sb.ID)) },
		"resume":  resume,
	} {
		if err := duringAStep(t, failpoint.PauseCaptured, pause, do); err != nil {
			t.Errorf("%s during a pause: %v", name, err)
		}
		h.Resume(e, sb.ID)
		h.Pause(e, sb.ID)
		if err := duringAStep(t, failpoint.ResumeRestored, resume, do); err != nil {
			t.Errorf("%s during a resume: %v", name, err)
		}
	}
	h.Pause(e, sb.ID)
	if err := duringAStep(t, failpoint.ResumeRestored, resume, func() error { return h.Branch(e, sb.ID, "later") }); err != nil {
		t.Errorf("branch during a resume: %v", err)
	}
}

// Calls also wait for a sandbox without automatic resume; it is then paused.
func TestACallDuringAPauseOfASandboxThatStaysPaused(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	pause := func() error { return enginefake.ErrorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})) }
	dial := func() error {
		c, err := e.DialAgent(t.Context(), sb.ID)
		if err == nil {
			c.Close()
		}
		return err
	}
	enginefake.WantPaused(h, "dial", duringAStep(t, failpoint.PauseCaptured, pause, dial))
	resume := func() error { return enginefake.ErrorOf(e.Resume(t.Context(), sb.ID)) }
	if err := duringAStep(t, failpoint.ResumeRestored, resume, dial); err != nil {
		t.Errorf("dial during a resume: %v", err)
	}
}
