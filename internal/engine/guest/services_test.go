package guest_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// A fork with services needs an agent that has them. It is refused before any child is made.
func TestServicesNeedAnAgentThatHasThem(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Fault("agent-of-before", 1)
	h.Snapshot(e, "old")
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "old", N: 2,
		Services: []servicespec.Spec{{Name: "web", Command: []string{"true"}}}})
	var told *sandbox.Error
	if !errors.As(err, &told) || !errors.Is(err, sandbox.ErrUnsupported) || told.Reason() != sandbox.ReasonAgentOld {
		t.Errorf("got %v", err)
	}
	if n := len(e.List()); n != 0 {
		t.Errorf("%d children were made", n)
	}
}
