package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// SpawnConfig describes how to start a VMM process.
type SpawnConfig struct {
	Binary string       // the forkd-vmm executable
	Shape  vmspec.Shape // of the VM; Spawn validates it
	Dir    string       // run directory: exists, is empty, short enough for a socket path
	KVM    *os.File     // /dev/kvm
	Dial   HostDialer   // if nil, the guest cannot reach the host
	Log    *os.File     // the process's standard error; may be nil
	Cgroup *os.File     // directory of its initial cgroup; if nil, the daemon's
	// Prewarm makes the process run an empty restore before it is ready. It takes as long as it
	// saves in the real restore, so it suits processes that wait for their use.
	Prewarm bool
	// Seccomp is the mode of the process's system call filters; empty for no filters.
	Seccomp seccomp.Mode
	// Starter starts the process in another way. If nil, the process is a child of this one.
	Starter Starter
}

// Spawn starts a VMM process and waits until its VM exists. On error only the (empty) run directory
// remains.
func Spawn(ctx context.Context, c SpawnConfig) (_ *Process, err error) {
	if err := c.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("spawn VMM: %w", err)
	}
	var u undo.Stack
	defer u.OnError(&err)
	files, err := openFiles(c, &u)
	if err != nil {
		return nil, err
	}
	defer unixfd.CloseAll(files)
	// Connect before the process starts: if this daemon ends or gives up, the process finds its
	// connection closed and ends too. We hold copies of its listeners, so connecting does not wait.
	cn, err := connect(c.Dir)
	if err != nil {
		return nil, err
	}
	proc, err := startProcess(ctx, c, files)
	if err != nil {
		cn.Close()
		return nil, fmt.Errorf("start %s: %w", c.Binary, err)
	}
	start, err := hostproc.StartTime(proc.pid)
	if err != nil {
		cn.Close()
		proc.end()
		return nil, err
	}
	p := newProcess(c.Dir, proc.pid, start, cn, c.Dial)
	p.kill = proc.kill // by its handle, a pidfd
	go proc.watch(p)
	ready := make(chan error, 1)
	go p.readLoop(ready)
	// We hold copies of its listeners, so the socket does not show the process's end.
	select {
	case err = <-ready:
	case <-p.done:
		err = vmm.ErrGone
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		p.Kill()
		<-p.done
		if errors.Is(err, vmm.ErrGone) {
			err = errors.New(p.Exit().Reason)
		}
		return nil, fmt.Errorf("spawn VMM: %w", err)
	}
	return p, nil
}

func newProcess(dir string, pid int, start uint64, c *wire.Conn, dial HostDialer) *Process {
	p := &Process{
		dir: dir, pid: pid, startTime: start, conn: c,
		lonely: lonelyLimit, done: make(chan struct{}), drained: make(chan struct{}), hungUp: make(chan struct{}),
		draining: make(chan struct{}), pending: map[uint64]chan wire.Message{},
		unasked: pace.New(unaskedRate, unaskedBurst),
	}
	p.dials.dial, p.dials.pace, p.dials.hungUp, p.dials.send = dial, newDialPace(), p.hungUp, p.sendDialed
	return p
}

// openFiles creates the child's descriptors, from wire.FDControl on. They are closed here after the
// start. If the start fails, the sockets' names are removed.
func openFiles(c SpawnConfig, u *undo.Stack) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			unixfd.CloseAll(files)
			files = nil
		}
	}()
	for _, s := range []struct{ name, net string }{{ControlSocket, "unixpacket"}, {VsockSocket, "unix"}} {
		path := filepath.Join(c.Dir, s.name)
		l, err := net.ListenUnix(s.net, &net.UnixAddr{Name: path, Net: s.net})
		if err != nil {
			return files, fmt.Errorf("listen on %s: %w", path, err)
		}
		l.SetUnlinkOnClose(false)
		u.Push(func() { os.Remove(path) })
		f, err := l.File()
		l.Close()
		if err != nil {
			return files, fmt.Errorf("listen on %s: %w", path, err)
		}
		files = append(files, f)
	}
	path := filepath.Join(c.Dir, ConsoleLog)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return files, fmt.Errorf("create console log: %w", err)
	}
	u.Push(func() { os.Remove(path) })
	return append(files, f), nil
}

// reap waits for a child of ours and closes done.
func (p *Process) reap(proc *os.Process) {
	st, err := proc.Wait()
	p.drain()
	switch {
	case err != nil:
		p.setExit(vmm.Exit{Kind: vmm.ExitKilled, Reason: err.Error()})
	default:
		p.setExit(vmm.Exit{Kind: vmm.ExitKilled, Reason: ended(st.String())})
	}
	close(p.done)
}

// drain waits until all messages sent before the process ended have been read: the process's own
// exit report, if any, precedes ours. If a process never accepted the connection, it leaves it
// open; closing the read side ends the reader after the queued messages.
func (p *Process) drain() {
	close(p.draining)
	p.conn.CloseRead()
	<-p.drained
}

// Ref names a VMM process across a daemon's restart: its run directory, and its pid with the start
// time, which rules out a later owner of the pid.
type Ref struct {
	Dir       string `json:"dir"`        // the run directory
	PID       int    `json:"pid"`        // in the daemon's PID namespace
	StartTime uint64 `json:"start_time"` // clock ticks since boot, field 22 of /proc/PID/stat
	// Confined is the process's report from before it had a guest.
	Confined bool `json:"confined,omitempty"`
}

// Ref returns a reference for a later Adopt.
func (p *Process) Ref() Ref {
	return Ref{Dir: p.Dir(), PID: p.pid, StartTime: p.startTime, Confined: ConfinementOf(p).Confined}
}

// Adopt takes over a VMM process spawned by another daemon. Its VM must have been booted or
// restored; shells end with their daemon. Adopt returns vmm.ErrGone if the process has ended, or if
// its pid belongs to another process.
func Adopt(ctx context.Context, ref Ref, dial HostDialer) (*Process, error) {
	pidfd, err := unix.PidfdOpen(ref.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("adopt VMM %d: %w (%w)", ref.PID, vmm.ErrGone, err)
	}
	// The pidfd pins the process. Without it, comparing the start time would prove nothing.
	start, err := hostproc.StartTime(ref.PID)
	if err != nil || start != ref.StartTime {
		unix.Close(pidfd)
		return nil, fmt.Errorf("adopt VMM %d: %w (its pid has another owner)", ref.PID, vmm.ErrGone)
	}
	cn, err := connect(ref.Dir)
	if err != nil {
		unix.Close(pidfd)
		return nil, err
	}
	p := newProcess(ref.Dir, ref.PID, start, cn, dial)
	p.confinement.Confined = ref.Confined
	pinned := os.NewFile(uintptr(pidfd), "pidfd")
	p.kill = func() error { return killPinned(pinned) }
	go p.watch(pinned, func() string { return "the VMM process was killed" })
	go p.readLoop(nil)
	st, err := askStatus(ctx, p)
	if err == nil && (st.Version < wire.Oldest || st.Version > wire.Version) {
		err = fmt.Errorf("it speaks control protocol %d, and this daemon %d to %d", st.Version, wire.Oldest, wire.Version)
	}
	if err != nil {
		p.Release()
		return nil, fmt.Errorf("adopt VMM %d in %s: %w", ref.PID, ref.Dir, err)
	}
	return p, nil
}

// watch waits for a process other than a child of this one. how returns the reason of its end. The
// descriptor is non-blocking, so the runtime polls it and no thread waits per VM.
func (p *Process) watch(f *os.File, how func() string) {
	defer f.Close()
	ended := func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	if c, err := f.SyscallConn(); err == nil {
		c.Read(ended)
	}
	p.drain()
	p.setExit(vmm.Exit{Kind: vmm.ExitKilled, Reason: how()})
	close(p.done)
}

// killPinned kills the process behind a pidfd. watch may close the pidfd.
func killPinned(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := c.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	return sent
}

// ErrGuestRefused is returned if the guest does not listen on the port, or if the device takes no
// more connections. The VM itself appears to run.
var ErrGuestRefused = errors.New("guest refused")

// DialVsock connects to a guest port through the VM's vsock socket.
func DialVsock(ctx context.Context, path string, port uint32) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial guest port %d: %w", port, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := vsockHandshake(c, port); err != nil {
		c.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("dial guest port %d: %w", port, err)
	}
	return c, nil
}

// vsockHandshake reads byte by byte, because the bytes after the line belong to the caller.
func vsockHandshake(c net.Conn, port uint32) error {
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		return err
	}
	var line strings.Builder
	one := make([]byte, 1)
	for line.Len() < 32 {
		if _, err := c.Read(one); err != nil {
			return fmt.Errorf("%w: %w", ErrGuestRefused, err)
		}
		if one[0] == '\n' {
			if !strings.HasPrefix(line.String(), "OK ") {
				return fmt.Errorf("%w: %q", ErrGuestRefused, line.String())
			}
			return nil
		}
		line.WriteByte(one[0])
	}
	return fmt.Errorf("%w: no answer line", ErrGuestRefused)
}
