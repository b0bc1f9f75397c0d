package engine

import (
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
)

// A branch reserves memory for the pages copied in the pause. Without it the branch is refused. A
// finished branch has released it.
func TestABranchNeedsMemoryForItsPause(t *testing.T) {
	h, e, sb := forked(t)
	before, plenty := h.stored(), h.available
	need := sb.Shape.MemoryBytes() // less than the bound in these tests
	give := func(n int64) {
		h.available = n
		e.Admission.Refresh()
	}
	give(e.cfg.HostReserve + need - 1)
	_, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	wantError(t, err, sandbox.ErrNoMemory, "during the pause", "needed", "MiB available")
	if now := h.stored(); now != before {
		t.Errorf("stored are now %s, before it was %s", now, before)
	}
	h.eval(e, sb.ID, "entropy")
	give(e.cfg.HostReserve + need)
	h.fault("capture-fail", 1)
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
	h.fork(e, "b", 1)
}
