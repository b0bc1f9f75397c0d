package launch

import (
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// VM is a VM that is restored from a snapshot, or is going to be.
type VM struct {
	*vmproc.VM
	GenID    [16]byte // of its restore
	Restored vmm.RestoreResult
	Pooled   bool         // it stood ready as a shell
	Prepared bool         // it is restored already, behind a gate of its own
	Lent     network.Lent // the newest end of its wire that it was given, and what its guest trusts
	// Populated is how many pages were mapped before it began.
	Populated int64
	// IdentityBy is how its guest was told who it is; empty: it was not yet.
	IdentityBy Way
	// Silent has its network stay shut when it is identified: somebody else opens it.
	Silent bool
	wire   *network.Wire   // nil: it needs none
	gate   *startgate.Gate // where it waits, until it has begun; nil: it does not
}

// closeGate frees the gate, open or shut.
func (m *VM) closeGate() {
	if m.gate != nil {
		m.gate.Close()
		m.gate = nil
	}
}

// Discard ends a machine and removes all it left.
func (m *VM) Discard() {
	m.VM.Discard()
	if m.Agent != nil {
		m.Agent.Close()
	}
	m.closeGate()
}
