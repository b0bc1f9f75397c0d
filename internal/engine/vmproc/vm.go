package vmproc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// VM is a VMM process with its run directory. It has exactly one owner at a time: its creator, then
// the pool, a running fork, or a sandbox. The owner ends it with Discard.
type VM struct {
	// Tops makes overlay files that belong to volumes, by disk. It is set before the VM gets its disks.
	Tops   map[int]Top
	sup    *Supervisor
	Proc   *client.Process       // the VMM process; it may have ended
	Dir    string                // path of its run directory
	group  atomic.Pointer[group] // enforces its limits; may be nil
	Shape  vmspec.Shape          // fixed when it is spawned
	CID    uint32                // vsock context ID of its guest
	Disks  *Disks                // its writable disks, see overlay.go
	Agent  *agentclient.Client   // set by its owner if there is an agent
	health vmHealth
	kills  killScan // see Kills
	// diskLimit is the number of bytes of the store that each new disk may use; 0 means no limit.
	diskLimit int64
	// Replaced describes how the VM was replaced by another one of the same sandbox. It is set
	// before the VM is ended.
	Replaced atomic.Pointer[string]

	evaluated atomic.Bool // see FirstEval
	executed  atomic.Bool // see FirstExec

	mu    sync.Mutex // guards the fields below; taken last
	onEnd func()     // called once if the process ends while it is set
	// moving is closed when the VM has moved to another group, or has failed to, with the error in
	// moveErr. It is nil if the VM stays.
	moving  chan struct{}
	moveErr error
}

// watch calls the owner when the process ends, and logs the health of its disks.
func (m *VM) watch() {
	m.watchHealth()
	m.sup.watchers.Go(func() {
		select {
		case <-m.Proc.Done():
		case <-m.sup.released:
			return
		}
		m.endGroup()
		m.mu.Lock()
		ended := m.onEnd
		m.onEnd = nil
		m.mu.Unlock()
		if ended != nil {
			ended()
		}
	})
}

// Own sets the function called when the process ends. If the process has already ended, Own returns
// false and calls no function.
func (m *VM) Own(ended func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Alive() {
		m.onEnd = nil
		return false
	}
	m.onEnd = ended
	return true
}

// Alive reports whether the process has not ended yet.
func (m *VM) Alive() bool {
	select {
	case <-m.Proc.Done():
		return false
	default:
		return true
	}
}

// Confined reports whether its system call filters keep the process from connecting a socket, and
// from the other calls they deny.
func (m *VM) Confined() bool { return client.ConfinementOf(m.Proc).Confined }

// End kills the process and waits until the kernel has removed it.
func (m *VM) End() {
	m.Proc.Kill()
	<-m.Proc.Done()
	m.Proc.Release()
	m.endGroup()
}

// Discard ends a VM and removes its files.
func (m *VM) Discard() {
	m.Own(nil)
	m.End()
	m.sup.Remove(m.Dir, m.Disks.Paths())
}

// WasPaused is the value of Replaced after a pause.
const WasPaused = "was paused"

// ReplacedError returns the error of a call into a VM that was replaced, or nil if it was not. id is
// its sandbox.
func (m *VM) ReplacedError(id string) error {
	how := m.Replaced.Load()
	if how == nil {
		return nil
	}
	reason := sandbox.ReasonSandboxRolledBack
	if *how == WasPaused {
		reason = sandbox.ReasonSandboxPaused
	}
	return sandbox.Detailed(sandbox.Errorf(sandbox.ErrGuestGone, reason, "sandbox %s %s", id, *how), "sandbox", id)
}

// MovedTo returns the VM under another run directory, which was exchanged with its own. The VM has
// settled. The caller sets the agent, since its connections began at the other address.
func (m *VM) MovedTo(dir string) *VM {
	next := &VM{sup: m.sup, Proc: m.Proc, Dir: dir, Shape: m.Shape, CID: m.CID, Disks: m.Disks}
	next.group.Store(m.group.Load())
	next.watch()
	return next
}

// FirstEval reports, once, that no code was evaluated in the guest yet, as far as this daemon
// knows.
func (m *VM) FirstEval() bool { return !m.evaluated.Swap(true) }

// FirstExec reports, once, that no program was run in the guest and no code evaluated yet.
func (m *VM) FirstExec() bool { return !m.executed.Swap(true) && !m.evaluated.Load() }

// NewAgent returns a client of the guest's agent.
func (m *VM) NewAgent() *agentclient.Client {
	path := m.Proc.VsockPath()
	to := func(port uint32) agentclient.DialFunc {
		return func(ctx context.Context) (net.Conn, error) { return client.DialVsock(ctx, path, port) }
	}
	return agentclient.New(to(agentproto.AgentPort), agentclient.WithIdentityPort(to(agentproto.IdentityPort)),
		agentclient.WithEvalPort(to(agentproto.EvalPort)))
}
