package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/timerslack"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
)

// connection is one process of forkd-spawn, and its pending requests.
type connection struct {
	*wire.Conn
	process *os.Process
	done    chan struct{} // closed when it has ended, or is unusable
	err     error         // the reason; valid after done

	mu      sync.Mutex // guards the fields below
	nextID  uint32
	pending map[uint32]chan answer
	ends    map[int]chan string // of its started VMMs
}

// answer is an answer with its descriptors.
type answer struct {
	wire.Message
	files []*os.File
	ended chan string // only for Spawned
}

// startProcess starts forkd-spawn. Without privileges it gets a user namespace, in which it has
// them. If the host gives this user a range of users, the namespace maps users for VMs. Without a
// namespace, forkd-spawn reports the unsupported parts.
func startProcess(binary string, log *slog.Logger) (*connection, error) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd, err := startCommand(binary, theirs, log)
	if err != nil {
		ours.Close()
		return nil, err
	}
	conn, err := wire.NewConn(ours)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	c := &connection{Conn: conn, process: cmd.Process, done: make(chan struct{}),
		pending: map[uint32]chan answer{}, ends: map[int]chan string{}}
	go c.run(cmd)
	return c, nil
}

// startCommand starts the process with as many privileges as this user can give it.
func startCommand(binary string, theirs *os.File, log *slog.Logger) (*exec.Cmd, error) {
	uid := os.Geteuid()
	if uid == 0 {
		cmd := command(binary, wire.ArgServe, theirs)
		return cmd, start(cmd)
	}
	m, err := findMapping()
	if err == nil {
		var cmd *exec.Cmd
		if cmd, err = startMapped(m, binary, theirs); err == nil {
			return cmd, nil
		}
		log.Warn("VMs share one user, since theirs cannot be mapped", "err", err)
	}
	cmd := command(binary, wire.ArgServe, theirs)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if start(cmd) == nil {
		return cmd, nil
	}
	cmd = command(binary, wire.ArgServe, theirs)
	return cmd, start(cmd)
}

// monitorSlack is the timer slack of forkd-spawn. Only its runtime's monitor thread uses timers
// there. Its VMMs set their own.
const monitorSlack = 20 * time.Millisecond

func start(cmd *exec.Cmd) error { return timerslack.Starting(monitorSlack, cmd.Start) }

// startMapped starts it in a user namespace without a map, has the map written, and then lets it
// continue.
func startMapped(m mapping, binary string, theirs *os.File) (*exec.Cmd, error) {
	wait, mapped, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer mapped.Close()
	defer wait.Close()
	cmd := command(binary, wire.ArgWait, theirs)
	cmd.ExtraFiles = append(cmd.ExtraFiles, wait) // wire.FDMapped
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
	if err := start(cmd); err != nil {
		return nil, err
	}
	err = m.of(cmd.Process.Pid)
	if err == nil {
		_, err = mapped.Write([]byte{1})
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

func command(binary, arg string, socket *os.File) *exec.Cmd {
	cmd := exec.Command(binary, arg)
	cmd.Args[0] = wire.Name
	// One processor for Go code: with more, the runtime wakes idle threads for each message.
	cmd.Dir, cmd.Env, cmd.Stderr = "/", append(failpoint.Child(), "GODEBUG=disablethp=1", "GOMAXPROCS=1"), os.Stderr
	cmd.ExtraFiles = []*os.File{socket} // wire.FDDaemon
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// run reads until the connection ends, and reaps the process.
func (c *connection) run(cmd *exec.Cmd) {
	err := c.read()
	c.Conn.Close()
	if errors.Is(err, wire.ErrMessage) {
		_ = cmd.Process.Kill()
	}
	if end := cmd.Wait(); end != nil {
		err = end
	}
	c.err = err
	close(c.done)
}

func (c *connection) close() {
	c.Conn.Close()
	<-c.done
}

func (c *connection) read() error {
	for {
		m, files, err := c.Receive()
		if err != nil {
			return err
		}
		c.take(m, files)
	}
}

// take passes a message to the waiting request.
func (c *connection) take(m wire.Message, files []*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Kind == wire.Ended {
		if end, ok := c.ends[int(m.PID)]; ok {
			end <- describe(syscall.WaitStatus(m.Status)) // the channel has room for one
			delete(c.ends, int(m.PID))
		}
		return
	}
	a := answer{Message: m, files: files}
	waiting, ok := c.pending[m.ID]
	delete(c.pending, m.ID)
	if !ok {
		a.discard()
		return
	}
	if m.Kind == wire.Spawned {
		a.ended = make(chan string, 1)
		c.ends[int(m.PID)] = a.ended
	}
	waiting <- a // the channel has room for one
}

// discard kills the process of an answer without a receiver.
func (a answer) discard() {
	for _, f := range a.files { // a pidfd
		_ = signalKill(f)
		f.Close()
	}
}

func signalKill(pidfd *os.File) (err error) {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	ctl := raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(ctl, err)
}

// errUnheard is returned if forkd-spawn had ended before it received the request, so the request
// may be sent to another one. A sent request must not be repeated: its process has the same
// listeners, and may take the only connection.
var errUnheard = errors.New("forkd-spawn has ended before it was asked")

// ask sends a request, and waits for its answer.
func (c *connection) ask(ctx context.Context, m wire.Message, files ...*os.File) (answer, error) {
	waiting := make(chan answer, 1)
	c.mu.Lock()
	c.nextID++
	m.ID = c.nextID
	c.pending[m.ID] = waiting
	c.mu.Unlock()
	if err := c.Send(m, files...); err != nil {
		c.forget(m.ID, waiting)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
			err = fmt.Errorf("%w: %w", errUnheard, err)
		}
		return answer{}, fmt.Errorf("ask forkd-spawn: %w", err)
	}
	select {
	case a := <-waiting:
		return a, nil
	case <-c.done:
	case <-ctx.Done():
	}
	c.forget(m.ID, waiting)
	if err := context.Cause(ctx); err != nil {
		return answer{}, fmt.Errorf("ask forkd-spawn: %w", err)
	}
	return answer{}, fmt.Errorf("forkd-spawn has ended: %w", c.err)
}

// forget abandons a request. Its answer is discarded, even if it has just arrived.
func (c *connection) forget(id uint32, waiting chan answer) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
	select {
	case a := <-waiting:
		a.discard()
	default:
	}
}

// started converts the answer to a Spawn.
func (a answer) started(c *connection) (vmclient.Started, error) {
	switch a.Kind {
	case wire.Spawned:
		pidfd, err := watchable(a.files[0])
		if err != nil {
			a.discard()
			return vmclient.Started{}, err
		}
		return vmclient.Started{PID: int(a.PID), PIDFD: pidfd, Ended: func() string { return c.end(a.ended) }}, nil
	case wire.Failed:
		return vmclient.Started{}, &jail.Error{Part: a.Part, Err: unix.Errno(a.Errno)}
	}
	a.discard()
	return vmclient.Started{}, fmt.Errorf("%w: a spawn is answered by kind %d", wire.ErrMessage, a.Kind)
}

// watchable returns the same pidfd as a non-blocking file. The runtime can poll it.
func watchable(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	ctl := raw.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) })
	if err := errors.Join(ctl, err); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f.Close()
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// end waits for the status of an ended VMM. forkd-spawn reports it a moment after the kernel. If
// forkd-spawn has ended before, the status is unknown.
func (c *connection) end(ended chan string) string {
	select {
	case how := <-ended:
		return how
	case <-c.done:
	}
	select {
	case how := <-ended:
		return how
	default:
		return "nobody saw how"
	}
}

// describe formats a status like os.ProcessState.
func describe(s syscall.WaitStatus) string {
	switch {
	case s.Exited():
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	case s.Signaled():
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("status %#x", uint32(s))
}
