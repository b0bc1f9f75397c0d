package op

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// admitBuffer reserves memory for the VMM's copy of pages during the pause, until the branch ends.
func (w *branchOp) admitBuffer() error {
	if w.cold {
		return nil
	}
	release, err := w.e.admission.Memory(vmm.PauseBuffer(w.src.Shape().MemoryBytes()))
	if err != nil {
		return fmt.Errorf("branch %s: memory for the pages copied during the pause: %w", w.req.SandboxID, err)
	}
	w.undo.Push(release)
	return nil
}
