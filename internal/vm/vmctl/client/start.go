package client

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/timerslack"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// Starter starts VMM processes without making them children of the daemon (package spawner/client).
type Starter interface {
	// Start returns when the process runs its program. The files stay the caller's.
	Start(ctx context.Context, l Launch) (Started, error)
}

// Launch is a VMM process to start, with its descriptors.
type Launch struct {
	Binary string     // the forkd-vmm executable
	Start  wire.Start // arguments of the process
	// Null is /dev/null, for standard input and output. Log is the standard error, or Null.
	Null, Log *os.File
	// KVM is /dev/kvm. Control and Vsock are listening sockets. Console is the console log.
	KVM, Control, Vsock, Console *os.File
	Failpoints                   *os.File // nil except in crash tests
	Cgroup                       *os.File // directory of its initial cgroup; if nil, the daemon's
}

// Started is a process started by a Starter.
type Started struct {
	PID   int           // in the daemon's PID namespace
	PIDFD *os.File      // non-blocking; the receiver closes it
	Ended func() string // returns the reason of the process's end; called after it
}

// handle is a newly started process.
type handle struct {
	pid   int
	kill  func() error
	end   func()         // kills it and waits for its end, if watch was not called
	watch func(*Process) // waits for its end, and reports it to the Process
}

// startProcess starts the process with files, from wire.FDControl on.
func startProcess(ctx context.Context, c SpawnConfig, files []*os.File) (*handle, error) {
	points, err := failpoint.Connect()
	if err != nil {
		return nil, err
	}
	if points != nil {
		defer points.Close()
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	l := Launch{
		Binary: c.Binary, Start: wire.Start{Shape: c.Shape, Prewarm: c.Prewarm, Seccomp: c.Seccomp},
		Null: null, Log: null, KVM: c.KVM, Control: files[0], Vsock: files[1], Console: files[2], Failpoints: points,
		Cgroup: c.Cgroup,
	}
	if c.Log != nil {
		l.Log = c.Log
	}
	if c.Starter != nil {
		return startElsewhere(ctx, c.Starter, l)
	}
	return startChild(l)
}

func startElsewhere(ctx context.Context, s Starter, l Launch) (*handle, error) {
	started, err := s.Start(ctx, l)
	if err != nil {
		return nil, err
	}
	kill := func() error { return killPinned(started.PIDFD) }
	return &handle{
		pid: started.PID, kill: kill,
		end: func() {
			_ = kill()
			started.PIDFD.Close() // the Starter reaps it
		},
		watch: func(p *Process) { p.watch(started.PIDFD, func() string { return ended(started.Ended()) }) },
	}, nil
}

// ended converts a process's end, in the words of os.ProcessState, to a reason.
func ended(how string) string {
	if strings.HasPrefix(how, "signal: bad system call") {
		return "the VMM process was killed by its filter of system calls"
	}
	return "the VMM process ended: " + how
}

// startChild starts the process as a child of this one, without a jail.
func startChild(l Launch) (*handle, error) {
	args, err := l.Start.Args()
	if err != nil {
		return nil, err
	}
	env := wire.Environment()
	files := []*os.File{l.Null, l.Null, l.Log, l.KVM, l.Control, l.Vsock, l.Console}
	if l.Failpoints != nil {
		files, env = append(files, l.Failpoints), slices.Concat(env, failpoint.Environ(wire.FDFailpoints))
	}
	var proc *os.Process
	err = timerslack.Starting(wire.MonitorSlack, func() (err error) {
		proc, err = os.StartProcess(l.Binary, args, &os.ProcAttr{
			Dir:   "/",
			Env:   env,
			Files: files,
			Sys:   attributes(l.Cgroup),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &handle{
		pid: proc.Pid, kill: proc.Kill,
		end: func() {
			_ = proc.Kill()
			_, _ = proc.Wait()
		},
		watch: func(p *Process) { p.reap(proc) },
	}, nil
}

// attributes returns the attributes of the new process. It has its own session: a Ctrl-C at the
// daemon's terminal must not end the VMs. It starts in its cgroup.
func attributes(group *os.File) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if group != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(group.Fd())
	}
	return a
}
