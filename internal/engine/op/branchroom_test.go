package op_test

import (
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// A branch reserves memory for the pages copied in the pause. Without it the branch is refused. A
// finished branch has released it.
func TestABranchNeedsMemoryForItsPause(t *testing.T) {
	h, e, sb := forked(t)
	before, plenty := h.Stored(), h.Available
	need := sb.Shape.MemoryBytes() // less than the bound in these tests
	complete := h.Cfg
	if err := complete.Complete(); err != nil {
		t.Fatal(err)
	}
	reserve := complete.HostReserve
	give := func(n int64) {
		h.Available = n
		e.Admission.Refresh()
	}
	give(reserve + need - 1)
	_, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	enginefake.WantError(t, err, sandbox.ErrNoMemory, "during the pause", "needed", "MiB available")
	if now := h.Stored(); now != before {
		t.Errorf("stored are now %s, before it was %s", now, before)
	}
	h.Eval(e, sb.ID, "entropy")
	give(reserve + need)
	h.Fault("capture-fail", 1)
	for range 2 { // one fails, the other succeeds
		_, err = e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	}
	if err != nil {
		t.Errorf("with just enough: %v", err)
	}
	if left := e.Admission.Pending(); left != (admission.Need{}) {
		t.Errorf("still taken: %+v", left)
	}
	give(plenty)
	h.Fork(e, "b", 1)
}
