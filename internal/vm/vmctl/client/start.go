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

// Starter starts VMM processes that are no children of the daemon: package spawner/client.
type Starter interface {
	// Start returns when the process has its program. The files stay the caller's.
	Start(ctx context.Context, l Launch) (Started, error)
}

// Launch is a VMM process to start, with its descriptors.
type Launch struct {
	Binary                       string
	Start                        wire.Start
	Null, Log                    *os.File
	KVM, Control, Vsock, Console *os.File
	Failpoints                   *os.File // nil but in crash tests
	Cgroup                       *os.File // folder of the cgroup that it starts in; nil: the daemon's own
}

// Started is a process that a Starter has started.
type Started struct {
	PID   int
	PIDFD *os.File      // does not block; the receiver's to close
	Ended func() string // says how it ended; called when it has
}

// handle is a process that was just started.
type handle struct {
	pid   int
	kill  func() error
	end   func()         // kills it and waits for its end, if nobody watches
	watch func(*Process) // waits for its end, and tells the Process
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
			started.PIDFD.Close() // whoever started it reaps it
		},
		watch: func(p *Process) { p.watch(started.PIDFD, func() string { return ended(started.Ended()) }) },
	}, nil
}

// ended says how a process ended, of which os.ProcessState has the words.
func ended(how string) string {
	if strings.HasPrefix(how, "signal: bad system call") {
		return "the VMM process was killed by its filter of system calls"
	}
	return "the VMM process ended: " + how
}

// startChild starts the process as a child of this one, in no jail.
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

// attributes are how the process begins. It has a session of its own: a Ctrl-C at the
// daemon's terminal must not end the VMs. It is never outside of its cgroup.
func attributes(group *os.File) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if group != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(group.Fd())
	}
	return a
}
