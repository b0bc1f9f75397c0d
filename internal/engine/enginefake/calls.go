package enginefake

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
)

// Change changes the host before the next admission.
func (h *Host) Change(e *engine.Engine, f func(*Host)) {
	f(h)
	e.Admission.Refresh()
}

// Branch makes a snapshot of a running sandbox.
func (h *Host) Branch(e *engine.Engine, id, tag string) error {
	_, err := e.Branch(h.T.Context(), sandbox.BranchRequest{SandboxID: id, Tag: tag})
	return err
}
