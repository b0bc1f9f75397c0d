package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

const (
	// chunkSize limits one piece of output; ptyChunkSize limits a piece from a terminal.
	chunkSize    = 32 << 10
	ptyChunkSize = 16 << 10

	// After a command has ended, its descendants may still hold its output open. The wait ends
	// after lingerQuiet without data, or after lingerMax in total.
	lingerQuiet = 300 * time.Millisecond
	lingerMax   = 3 * time.Second
)

// Process is one running command.
type Process struct {
	info  *process.ProcessInfo
	child *reap.Child
	group *procgroup.Group
	hub   hub
	gate  *sync.RWMutex // of the Table
	limit time.Time     // when it is killed; zero without a limit

	pty   *os.File // may be nil, without a terminal
	stdin *os.File // nil for /dev/null and with a terminal

	inMu sync.Mutex // keeps one caller's input together

	lingering chan struct{} // closed when the process has ended
	ended     chan struct{} // closed when the end was published

	killed func() string // why the kernel killed it for lack of memory; empty if it did not
}

// output is an output of the process, read by the agent.
type output struct {
	f    *os.File
	size int
	from stream
}

// stream identifies one of a process's outputs.
type stream uint8

const (
	fromStdout stream = iota
	fromStderr
	fromPTY
)

// start runs cmd. On failure it closes all files.
func (t *Table) start(cmd *exec.Cmd, info *process.ProcessInfo, size *process.PTY,
	stdin bool) (_ *Process, _ []output, err error) {
	p := t.newProcess(info)
	var theirs []*os.File // closed in any case once the child has them
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	var outs []output
	defer func() {
		if err != nil {
			p.closeFiles(outs)
			p.group.Release()
		}
	}()
	if size != nil {
		outs, theirs, err = p.openPTY(cmd, size)
	} else {
		outs, theirs, err = p.openPipes(cmd, stdin)
	}
	if err != nil {
		return nil, nil, err
	}
	if p.group, err = t.groups.New(); err != nil {
		return nil, nil, err
	}
	if p.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, p.group.FD()
	}
	if p.child, err = t.reaper.Start(cmd); err != nil {
		return nil, nil, err
	}
	p.info.Pid = uint32(p.child.Pid)
	return p, outs, nil
}

func (t *Table) newProcess(info *process.ProcessInfo) *Process {
	return &Process{info: info, gate: t.gate, lingering: make(chan struct{}), ended: make(chan struct{})}
}

func (p *Process) openPipes(cmd *exec.Cmd, stdin bool) (outs []output, theirs []*os.File, err error) {
	if stdin {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("make stdin: %w", err)
		}
		cmd.Stdin, p.stdin = r, w
		theirs = append(theirs, r)
	}
	or, ow, err := os.Pipe()
	if err != nil {
		return nil, theirs, fmt.Errorf("make stdout: %w", err)
	}
	cmd.Stdout = ow
	theirs = append(theirs, ow)
	outs = append(outs, output{or, chunkSize, fromStdout})
	er, ew, err := os.Pipe()
	if err != nil {
		return outs, theirs, fmt.Errorf("make stderr: %w", err)
	}
	cmd.Stderr = ew
	return append(outs, output{er, chunkSize, fromStderr}), append(theirs, ew), nil
}

func (p *Process) openPTY(cmd *exec.Cmd, size *process.PTY) (outs []output, theirs []*os.File, err error) {
	master, tty, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	if p.pty, err = pollable(master); err != nil {
		return nil, []*os.File{tty}, err
	}
	master = p.pty
	outs = []output{{master, ptyChunkSize, fromPTY}}
	theirs = []*os.File{tty}
	if cred := cmd.SysProcAttr.Credential; cred != nil {
		// The user must own the terminal to open it again by name.
		if err := tty.Chown(int(cred.Uid), -1); err != nil {
			return outs, theirs, fmt.Errorf("give terminal to user: %w", err)
		}
	}
	if err := p.resize(size); err != nil {
		return outs, theirs, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr.Setctty = true
	return outs, theirs, nil
}

func (p *Process) resize(size *process.PTY) error {
	s := size.GetSize()
	if s.GetCols() == 0 || s.GetRows() == 0 {
		return nil
	}
	ws := &unix.Winsize{Col: uint16(min(s.GetCols(), 0xffff)), Row: uint16(min(s.GetRows(), 0xffff))}
	c, err := p.pty.SyscallConn() // not Fd, which would make the file block
	if err != nil {
		return fmt.Errorf("set terminal size: %w", err)
	}
	var set error
	err = c.Control(func(fd uintptr) { set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) })
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("set terminal size: %w", err)
	}
	return nil
}

// pollable returns a terminal whose reads wait without a thread, so that an update can hold them
// back. The library leaves a file that blocks. It closes f.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// run carries output until the process and its output have ended. It then discards later output of
// background children.
func (p *Process) run(outs []output) {
	var readers sync.WaitGroup
	open := make([]bool, len(outs))
	for i, o := range outs {
		readers.Go(func() { open[i] = p.carry(o) })
	}
	<-p.child.Done()
	for _, o := range outs {
		_ = o.f.SetReadDeadline(time.Now()) // wakes a waiting reader
	}
	close(p.lingering)
	readers.Wait()
	p.hub.finish(p.endEvent(p.child.Status()))
	p.group.Release()
	for _, o := range outs {
		_ = o.f.SetReadDeadline(time.Time{})
	}
	close(p.ended) // from here on stop may set a deadline again
	if p.pty == nil {
		// Closing the pipe would end a background child at its next line of output.
		for i, o := range outs {
			if open[i] {
				readers.Go(func() { _, _ = io.Copy(io.Discard, o.f) })
			}
		}
	}
	readers.Wait()
	p.closeFiles(outs)
}

// carry publishes the bytes of one output. It reports whether another process still holds the other
// end open.
func (p *Process) carry(o output) bool {
	buf := make([]byte, o.size)
	// Only the time spent waiting for output counts, not for subscribers.
	budget := lingerMax
	armed := false
	for {
		began := time.Now()
		if p.isLingering() {
			armed = true
			_ = o.f.SetReadDeadline(began.Add(min(lingerQuiet, budget)))
		}
		waited, err := p.pass(o, buf)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if armed {
				return true
			}
			<-p.lingering // run has just interrupted the read
		default:
			return false // end of file; a terminal returns EIO
		}
		if armed {
			if budget -= waited; budget <= 0 {
				return true
			}
		}
	}
}

// pass reads a piece of output and publishes it. It returns the time it waited for the piece. The gate
// is locked from the read on, so no byte is in this process only while another has locked it.
func (p *Process) pass(o output, buf []byte) (waited time.Duration, err error) {
	began := time.Now()
	c, err := o.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	err2 := c.Read(func(fd uintptr) bool {
		p.gate.RLock()
		defer p.gate.RUnlock()
		n, e := ignoringEINTR(int(fd), buf)
		if errors.Is(e, unix.EAGAIN) {
			return false
		}
		waited = time.Since(began)
		switch {
		case e != nil:
			err = e
		case n == 0:
			err = io.EOF
		default:
			// An exact copy: subscribers encode it while this goroutine reads on.
			p.hub.publish(o.from, bytes.Clone(buf[:n]))
		}
		return true
	})
	if err2 != nil {
		return time.Since(began), err2
	}
	return waited, err
}

func ignoringEINTR(fd int, buf []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *Process) isLingering() bool {
	select {
	case <-p.lingering:
		return true
	default:
		return false
	}
}

// stop makes run return. No more output is read.
func (p *Process) stop(outs []output) {
	p.killTree()
	<-p.ended
	for _, o := range outs {
		_ = o.f.SetReadDeadline(time.Now())
	}
}

// killTree kills the process and all its descendants.
func (p *Process) killTree() {
	if p.group != nil {
		if p.group.Kill() == nil {
			return
		}
	}
	select {
	case <-p.child.Done():
		// The pid may be reused by now. The session id is not reused while a member lives.
		procgroup.KillSession(p.child.Pid)
	default:
		procgroup.KillTree(p.child.Pid)
	}
}

func (p *Process) closeFiles(outs []output) {
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	for _, o := range outs {
		_ = o.f.Close() // including a terminal
	}
}

func dataEvent(from stream, b []byte) *process.ProcessEvent {
	d := &process.ProcessEvent_DataEvent{}
	switch from {
	case fromStdout:
		d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: b}
	case fromStderr:
		d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: b}
	case fromPTY:
		d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: b}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

// outputOf is the reverse of dataEvent. b is nil if ev contains no output.
func outputOf(ev *process.ProcessEvent) (from stream, b []byte) {
	switch d := ev.GetData().GetOutput().(type) {
	case *process.ProcessEvent_DataEvent_Stdout:
		return fromStdout, d.Stdout
	case *process.ProcessEvent_DataEvent_Stderr:
		return fromStderr, d.Stderr
	case *process.ProcessEvent_DataEvent_Pty:
		return fromPTY, d.Pty
	}
	return 0, nil
}

func startEvent(pid uint32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
}

func keepaliveEvent() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
}

// droppedEvent notes that a reader missed n bytes of output at this point.
func droppedEvent(n int64) *process.ProcessEvent {
	ev := keepaliveEvent()
	ev.GetKeepalive().OutputDropped = n
	return ev
}

// shellKilled is the exit code of a shell after SIGKILL has ended its program.
const shellKilled = 128 + int(unix.SIGKILL)

func (p *Process) endEvent(ws unix.WaitStatus) *process.ProcessEvent {
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(ws.ExitStatus()), Exited: ws.Exited()}
	if ws.Exited() {
		end.Status = fmt.Sprintf("exit status %d", ws.ExitStatus())
	} else {
		end.Status = "signal: " + ws.Signal().String()
		if ws.CoreDump() {
			end.Status += " (core dumped)"
		}
	}
	if end.ExitCode != 0 || !end.Exited {
		end.Error = proto.String(end.Status)
	}
	byKill := ws.Signaled() && ws.Signal() == unix.SIGKILL || ws.ExitStatus() == shellKilled
	if byKill && p.killed != nil {
		if why := p.killed(); why != "" {
			end.Error = proto.String(why)
		}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}
