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

// HostDialer opens the host end of a guest's connection to a host port. The caller closes the file.
// An error refuses the connection. One goroutine per VM calls it, at most as often as answerRate
// allows.
type HostDialer func(port uint32) (*os.File, error)

// Process is a VMM process, spawned or adopted. Its methods are safe for concurrent use.
type Process struct {
	pid       int
	startTime uint64
	conn      *wire.Conn

	// kill sends SIGKILL through a descriptor that pins the process, since its pid may be reused
	// after its end. It returns os.ErrProcessDone or os.ErrClosed if the process has ended.
	kill func() error

	health  healthWatch
	dials   dialQueue
	unasked *pace.Bucket // limits unsolicited health reports

	done     chan struct{}
	draining chan struct{} // closed when the process has ended
	drained  chan struct{} // closed when the control socket is read to its end
	hungUp   chan struct{} // closed when the control socket is closed

	mu  sync.Mutex // guards the fields below
	dir string
	// confinement is the process's report before it had a guest. Later reports are not trusted.
	confinement seccomp.Confinement
	nextID      uint64
	pending     map[uint64]chan wire.Message
	late        int  // abandoned calls with answers still to come
	gone        bool // the control socket is closed
	released    bool // set by Release
	exit        *vmm.Exit
	lonely      time.Duration // lonelyLimit, except in tests
}

// PID returns the process's id on this host.
func (p *Process) PID() int { return p.pid }

// Dir returns the VM's run directory. The caller removes it after Done.
func (p *Process) Dir() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dir
}

// Moved sets the new name of the run directory. The process itself uses its files by descriptor.
func (p *Process) Moved(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = dir
}

// ConfinementOf returns the confinement of the process by system call filters. For an adopted
// process it is the value recorded by the previous daemon.
func ConfinementOf(p *Process) seccomp.Confinement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.confinement
}

// VsockPath returns the path of the Unix socket for connections to guest ports.
func (p *Process) VsockPath() string { return filepath.Join(p.Dir(), VsockSocket) }

// Done returns a channel that is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns the VM's exit. It is valid after Done.
func (p *Process) Exit() vmm.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		return vmm.Exit{Kind: vmm.ExitKilled, Reason: "the VMM process ended without a word"}
	}
	return *p.exit
}

// Kill sends SIGKILL to the process; the kernel frees the VM. Wait for Done.
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

// Release closes the control connection without touching a running VM. Another daemon can then
// adopt it. A shell ends when its connection is closed.
func (p *Process) Release() {
	p.mu.Lock()
	p.released = true
	p.mu.Unlock()
	p.conn.Close()
}
