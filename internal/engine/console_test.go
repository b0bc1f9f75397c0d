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
