package guest_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// An evaluation without memory for its answer says that the code has run, and is not the error of a
// busy daemon, which clients retry.
func TestAnEvalWithoutRoomForItsAnswer(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "oom", Keep: func(int) int { return 0 }})
	enginefake.WantError(t, err, sandbox.ErrNoMemory, id, "the code has run")
	var told *sandbox.Error
	if !errors.As(err, &told) || told.Reason() != sandbox.ReasonAnswerNoRoom || errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("the reason is not right: %v", err)
	}
	e.Watch.Look(t.Context())
	if i, err := e.Get(id); err != nil || i.LastOOM == nil {
		t.Errorf("the code has not run: %+v, %v", i, err)
	}
}
