package client

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Names of the files in a VM's run directory.
const (
	ControlSocket = "control.sock" // SEQPACKET, the protocol of package wire
	VsockSocket   = "vsock.sock"   // stream: "CONNECT <port>\n", answered by "OK <n>\n"
	ConsoleLog    = "console.log"  // the serial console, bounded
)

// HostDialer opens the host end of a connection that the guest makes to a host
// port. The file is closed by the caller. An error refuses the connection. It is
// called by one goroutine per VM, and not more often than answerRate allows.
type HostDialer func(port uint32) (*os.File, error)

// Process is a VMM process, spawned or adopted. Its methods are safe for
// concurrent use. Done is closed when it has ended and is reaped.
type Process struct {
	pid       int
	startTime uint64
	conn      *wire.Conn

	// kill sends SIGKILL to this very process, by a descriptor that pins it: after its
	// end its pid may be another's. os.ErrProcessDone or os.ErrClosed: it has ended.
	kill func() error

	health  healthWatch
	dials   dialQueue
	unasked *pace.Bucket // of accounts of the disks

	done     chan struct{}
	draining chan struct{} // closed when the process has ended
	drained  chan struct{} // closed when nothing more can be read from the control socket
	hungUp   chan struct{} // closed when the control socket is

	mu  sync.Mutex // guards what follows
	dir string
	// confinement is what it said before it had a guest: what it says later is not to be believed.
	confinement seccomp.Confinement
	nextID      uint64
	pending     map[uint64]chan wire.Message
	late        int  // calls that were given up and whose answers are still to come
	gone        bool // the control socket is closed
	released    bool // by Release
	exit        *vmm.Exit
	lonely      time.Duration // lonelyLimit but in tests
}

// PID is the process's id on this host.
func (p *Process) PID() int { return p.pid }

// Dir is the VM's run directory. The caller removes it after Done.
func (p *Process) Dir() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dir
}

// Moved says that the run directory has another name now. The process itself
// knows its files by their descriptors.
func (p *Process) Moved(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = dir
}

// ConfinementOf says whether filters have taken system calls from the process. Of an adopted one
// it is what the daemon before noted.
func ConfinementOf(p *Process) seccomp.Confinement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.confinement
}

// VsockPath is the Unix socket through which guest ports are reached.
func (p *Process) VsockPath() string { return filepath.Join(p.Dir(), VsockSocket) }

// Done is closed after the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the VM ended. Valid after Done.
func (p *Process) Exit() vmm.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		return vmm.Exit{Kind: vmm.ExitKilled, Reason: "the VMM process ended without a word"}
	}
	return *p.exit
}

// Kill ends the process at once; the kernel frees the VM. Wait for Done.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return nil
	default:
		err := p.kill()
		if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	}
}

// Release closes the control connection without touching a running VM, so that
// another daemon can adopt it. A shell ends when its connection is closed.
func (p *Process) Release() {
	p.mu.Lock()
	p.released = true
	p.mu.Unlock()
	p.conn.Close()
}
