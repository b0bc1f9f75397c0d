package launch

import (
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// VM is a VM restored from a snapshot, or about to be.
type VM struct {
	*vmproc.VM
	GenID    [16]byte          // of its restore
	Restored vmm.RestoreResult // durations of the restore's phases
	Pooled   bool              // it was a ready shell
	Prepared bool              // it is already restored and waits at its gate
	Lent     network.Lent      // the newest end of its wire that it got, and the certificate its guest got
	// Populated is the number of pages mapped before it started.
	Populated int64
	// IdentityBy is the channel on which its guest got its identity. It is empty before that.
	IdentityBy Way
	// Silent keeps its network closed after its identification: the caller opens it.
	Silent bool
	// Mounts are the volumes that the guest mounts with its identity.
	Mounts []*agentv1.VolumeMount
	wire   *network.Wire   // nil if it needs no network
	gate   *startgate.Gate // its start gate until it has started; otherwise nil
}

// closeGate frees the gate, open or shut.
func (m *VM) closeGate() {
	if m.gate != nil {
		m.gate.Close()
		m.gate = nil
	}
}

// Discard ends a VM and removes its files.
func (m *VM) Discard() {
	m.VM.Discard()
	if m.Agent != nil {
		m.Agent.Close()
	}
	m.closeGate()
}
