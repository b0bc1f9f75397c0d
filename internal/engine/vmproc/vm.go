package vmproc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// VM is a VMM process with its run directory. Exactly one party owns it at a
// time: whoever makes it, then the pool, a fork under way, or a sandbox. The owner
// ends it with Discard.
type VM struct {
	sup    *Supervisor
	Proc   *client.Process
	Dir    string
	group  atomic.Pointer[group] // what keeps it within limits; nil: nothing does
	Shape  vmspec.Shape
	CID    uint32
	Disks  *Disks              // what it writes to, see overlay.go
	Agent  *agentclient.Client // set by its owner when there is an agent to speak to
	health vmHealth
	// diskLimit is how many bytes of the store each disk may take that it is given; 0: any number.
	diskLimit int64
	// Replaced says, once the VM was put aside for another one of the same
	// sandbox, how that came. It is set before the VM is ended.
	Replaced atomic.Pointer[string]

	evaluated atomic.Bool // see FirstEval
	executed  atomic.Bool // see FirstExec

	mu    sync.Mutex // guards what follows; taken last
	onEnd func()     // called once if the process ends while it is set
	// moving is closed when the VM has moved to another group, or moveErr says why not; nil: it stays.
	moving  chan struct{}
	moveErr error
}

// watch has the owner called when the process ends, and logs how its disks are doing.
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

// Own sets what is called when the process ends. It reports false, and nothing is
// called, when the process has ended already.
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

// Confined reports whether the process cannot connect a socket, nor do anything else that its filters
// of system calls take.
func (m *VM) Confined() bool { return client.ConfinementOf(m.Proc).Confined }

// End kills the process and waits until the kernel has taken it away.
func (m *VM) End() {
	m.Proc.Kill()
	<-m.Proc.Done()
	m.Proc.Release()
	m.endGroup()
}

// Discard ends a VM and removes all it left.
func (m *VM) Discard() {
	m.Own(nil)
	m.End()
	m.sup.Remove(m.Dir, m.Disks.Paths())
}

// MovedTo is the VM under another run directory, which was exchanged with its own. The
// caller sets the agent, whose connections began at the other address. It has settled.
func (m *VM) MovedTo(dir string) *VM {
	next := &VM{sup: m.sup, Proc: m.Proc, Dir: dir, Shape: m.Shape, CID: m.CID, Disks: m.Disks}
	next.group.Store(m.group.Load())
	next.watch()
	return next
}

// FirstEval reports, once, that nothing was evaluated in the guest yet, as far as this
// daemon knows.
func (m *VM) FirstEval() bool { return !m.evaluated.Swap(true) }

// FirstExec reports, once, that nothing was run in the guest yet, nor evaluated.
func (m *VM) FirstExec() bool { return !m.executed.Swap(true) && !m.evaluated.Load() }

// NewAgent is a client of the guest's agent.
func (m *VM) NewAgent() *agentclient.Client {
	path := m.Proc.VsockPath()
	to := func(port uint32) agentclient.DialFunc {
		return func(ctx context.Context) (net.Conn, error) { return client.DialVsock(ctx, path, port) }
	}
	return agentclient.New(to(agentproto.AgentPort), agentclient.WithIdentityPort(to(agentproto.IdentityPort)),
		agentclient.WithEvalPort(to(agentproto.EvalPort)))
}
