package guest_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// A sandbox that its user broke, and an argument that Linux does not take, have their own classes.
func TestClassesOfTheAgentsErrors(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "broken"})
	enginefake.WantError(t, err, sandbox.ErrGuestGone, id, "system files are gone")
	var told *sandbox.Error
	if !errors.As(err, &told) || told.Reason() != sandbox.ReasonSandboxBroken || told.Details()["sandbox"] != id {
		t.Errorf("the reason is not right: %v", err)
	}
	_, err = e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "long"})
	enginefake.WantError(t, err, sandbox.ErrInvalid, id, "argument 1 is 131072 bytes")
	if i, err := e.Get(id); err != nil || i.Status != sandbox.StatusRunning {
		t.Errorf("it is %+v, %v", i, err)
	}
}
