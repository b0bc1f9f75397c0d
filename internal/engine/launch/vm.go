package launch

import (
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmm"
)

// VM is a VM that is restored from a snapshot, or is going to be.
type VM struct {
	*vmproc.VM
	GenID    [16]byte // of its restore
	Restored vmm.RestoreResult
	Pooled   bool            // it stood ready as a shell
	Prepared bool            // it is restored already, behind a gate of its own
	gate     *startgate.Gate // of a prepared one, until it has begun
}

// OpenGate lets a prepared machine run; another one has no gate of its own.
func (m *VM) OpenGate() error {
	if m.gate == nil {
		return nil
	}
	return m.gate.Open()
}

// CloseGate frees the gate, open or shut.
func (m *VM) CloseGate() {
	if m.gate != nil {
		m.gate.Close()
		m.gate = nil
	}
}

// Discard ends a machine and removes all it left.
func (m *VM) Discard() {
	m.VM.Discard()
	m.CloseGate()
}
