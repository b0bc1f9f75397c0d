//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Config configures a supervisor. All durations must be positive.
type Config struct {
	Argv         []string      // the daemon's program, found in PATH, and its arguments
	StartTimeout time.Duration // a daemon that is not ready for this time is killed and started again
	Watchdog     time.Duration // a ready daemon that does not report for this time is killed and started again
	Grace        time.Duration // time between SIGTERM and SIGKILL at the end
	BackOff      time.Duration // pause before the first new start; it doubles with each start that fails
	BackOffMax   time.Duration // the longest such pause
	Log          *slog.Logger
}

// final has the exit codes of a daemon that will not start however often it is tried: a wrong command line or
// configuration, and a host without KVM. They end the supervisor if the daemon was never ready.
var final = map[int]bool{2: true, 3: true}

// Supervisor runs one daemon. Make it with New.
type Supervisor struct {
	cfg      Config
	children *children
	reports  *reports
	restarts chan struct{}

	wasReady bool
	pause    time.Duration // before the next start
}

// New prepares a supervisor: it becomes the parent of orphans below it, and listens for reports. Close frees it.
func New(c Config) (*Supervisor, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	r, err := listen()
	if err != nil {
		return nil, err
	}
	s := &Supervisor{cfg: c, reports: r, children: newChildren(), pause: c.BackOff,
		restarts: make(chan struct{}, 1)}
	return s, nil
}

// Close frees what New made. It ends no process.
func (s *Supervisor) Close() error {
	s.children.close()
	return s.reports.close()
}

// Restart makes Run stop the daemon and start it again. It is safe for concurrent use.
func (s *Supervisor) Restart() {
	select {
	case s.restarts <- struct{}{}:
	default: // one is on its way
	}
}

// Run keeps the daemon running until ctx ends. It then stops the daemon, and returns 0. It returns the daemon's exit
// code if the daemon cannot start at all.
func (s *Supervisor) Run(ctx context.Context) (code int, err error) {
	path, err := exec.LookPath(s.cfg.Argv[0])
	if err != nil {
		return 0, err
	}
	for {
		began := time.Now()
		r, err := s.start(path)
		if err != nil && !s.wasReady {
			return 0, err
		}
		if err != nil { // such as a limit of processes; VMs may run, so the container goes on
			s.cfg.Log.Error("the daemon was not started", "error", err, "again_in", s.pause)
			if !s.rest(ctx) {
				return 0, nil
			}
			continue
		}
		s.watch(ctx, r)
		if r.stop {
			return 0, nil
		}
		if r.restart {
			continue
		}
		if code := r.status.ExitStatus(); !s.wasReady && r.status.Exited() && final[code] {
			s.cfg.Log.Error("the daemon cannot start", "exit_code", code)
			return code, nil
		}
		if r.ready && time.Since(began) > s.cfg.BackOffMax {
			s.pause = s.cfg.BackOff
		}
		s.cfg.Log.Error("the daemon ended; its VMs run on", "how", describe(r.status), "again_in", s.pause)
		if !s.rest(ctx) {
			return 0, nil
		}
	}
}

// rest waits before the next start. It reports false if the supervisor has to end.
func (s *Supervisor) rest(ctx context.Context) bool {
	timer := time.NewTimer(s.pause)
	defer timer.Stop()
	s.pause = min(2*s.pause, s.cfg.BackOffMax)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-s.restarts:
		return true
	}
}

func describe(w unix.WaitStatus) string {
	if w.Signaled() {
		return "killed by " + unix.SignalName(w.Signal())
	}
	return fmt.Sprintf("exit code %d", w.ExitStatus())
}

// start starts the daemon.
func (s *Supervisor) start(path string) (*run, error) {
	env := append(os.Environ(), "NOTIFY_SOCKET="+s.reports.path,
		fmt.Sprintf("WATCHDOG_USEC=%d", s.cfg.Watchdog.Microseconds()))
	pid, ended, err := s.children.start(path, s.cfg.Argv, env)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	s.cfg.Log.Info("the daemon is started", "pid", pid)
	return &run{pid: pid, ended: ended, log: s.cfg.Log}, nil
}

// run is one run of the daemon.
type run struct {
	pid     int
	ended   <-chan unix.WaitStatus
	log     *slog.Logger
	status  unix.WaitStatus // once it has ended
	ready   bool            // it was ready at some time
	stop    bool            // the supervisor ends
	restart bool            // it was stopped to be started again
}

// signal sends a signal to the daemon. The process is a child that was not waited for, so its PID is its own.
func (r *run) signal(sig unix.Signal) {
	if r.pid <= 1 {
		panic(fmt.Sprintf("supervisor: signal to PID %d, which is no child", r.pid))
	}
	if err := unix.Kill(r.pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		r.log.Error("the daemon cannot be signalled", "signal", unix.SignalName(sig), "error", err)
	}
}

// watch returns when the daemon has ended.
func (s *Supervisor) watch(ctx context.Context, r *run) {
	alarm := time.NewTimer(s.cfg.StartTimeout)
	defer alarm.Stop()
	done, next := ctx.Done(), unix.SIGKILL // next is the signal of the alarm
	stop := func() {
		r.signal(unix.SIGTERM)
		next = unix.SIGKILL
		alarm.Reset(s.cfg.Grace)
	}
	stopping := func() bool { return r.stop || r.restart }
	for {
		select {
		case r.status = <-r.ended:
			return
		case report := <-s.reports.c:
			if report.pid != r.pid || stopping() {
				continue
			}
			if report.ready && !r.ready {
				s.cfg.Log.Info("the daemon is ready", "pid", r.pid)
				r.ready, s.wasReady = true, true
			}
			if r.ready {
				next = unix.SIGABRT // a Go program then writes its goroutines
				alarm.Reset(s.cfg.Watchdog)
			}
		case <-alarm.C:
			s.cfg.Log.Error("the daemon does not answer", "ready", r.ready, "stopping", stopping(),
				"signal", unix.SignalName(next))
			r.signal(next)
			next = unix.SIGKILL
			alarm.Reset(s.cfg.Grace)
		case <-s.restarts:
			if !stopping() {
				s.cfg.Log.Info("the daemon is being restarted; its VMs run on")
				r.restart = true
				stop()
			}
		case <-done:
			s.cfg.Log.Info("the daemon is being stopped")
			done, r.stop = nil, true
			stop()
		}
	}
}
