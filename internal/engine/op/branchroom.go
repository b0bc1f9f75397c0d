package op

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// admitBuffer reserves, until the branch ends, the memory that the VMM may take to hold
// what it copies during the pause.
func (w *branchOp) admitBuffer() error {
	if w.cold {
		return nil
	}
	release, err := w.e.admission.Memory(vmm.PauseBuffer(w.src.Shape().MemoryBytes()))
	if err != nil {
		return fmt.Errorf("branch %s: memory for what is copied while it is paused: %w", w.req.SandboxID, err)
	}
	w.undo.Push(release)
	return nil
}
