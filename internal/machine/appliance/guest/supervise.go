package guest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The restart delay doubles from min to max while a service keeps ending soon after its start.
const (
	minRestartDelay = 200 * time.Millisecond
	maxRestartDelay = 10 * time.Second
	healthyAfter    = 30 * time.Second
)

// supervisor keeps the services running and reaps all orphans of the system.
type supervisor struct {
	logf   func(string, ...any)
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu is held while a process is started and while processes are reaped, so that a child cannot be reaped
	// before it is in waiting.
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus
	ends    map[string]ServiceStatus // of services that ended at least once
}

// ServiceStatus records how often a service was restarted, and how it last ended.
type ServiceStatus struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	Last     string `json:"last"` // how it last ended
}

// status lists the services that have ended at least once.
func (s *supervisor) status() []ServiceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq([]ServiceStatus{}, maps.Values(s.ends))
}

func (s *supervisor) ended(name, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[name] = ServiceStatus{name, s.ends[name].Restarts + 1, how}
}

func newSupervisor(logf func(string, ...any)) *supervisor {
	ctx, cancel := context.WithCancel(context.Background())
	s := &supervisor{logf: logf, ctx: ctx, cancel: cancel, waiting: map[int]chan unix.WaitStatus{},
		ends: map[string]ServiceStatus{}}
	return s
}

// start starts reaping, and one keeper per service. stop waits for the keepers.
func (s *supervisor) start(services []Service) {
	child := make(chan os.Signal, 1)
	signal.Notify(child, unix.SIGCHLD)
	go s.reapLoop(child) // runs as long as the system
	for _, svc := range services {
		if _, err := os.Stat(svc.Args[0]); err != nil {
			s.logf("service %s: not in this appliance", svc.Name)
			continue
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.keep(svc)
		}()
	}
}

// stop ends all processes of the system, first with SIGTERM.
func (s *supervisor) stop(grace time.Duration) {
	s.cancel()
	_ = unix.Kill(-1, unix.SIGTERM)
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(grace):
	}
	_ = unix.Kill(-1, unix.SIGKILL)
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		s.logf("services did not end")
	}
}

func (s *supervisor) reapLoop(child <-chan os.Signal) {
	for {
		s.reap()
		select {
		case <-child:
		case <-time.After(time.Second): // a signal may be merged with one being handled
		}
	}
}

func (s *supervisor) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c, ok := s.waiting[pid]; ok {
			delete(s.waiting, pid)
			c <- ws // buffered
		}
	}
}

// keep runs a service repeatedly until the system stops.
func (s *supervisor) keep(svc Service) {
	delay := minRestartDelay
	for s.ctx.Err() == nil {
		began := time.Now()
		how := s.runOnce(svc)
		s.ended(svc.Name, how)
		if s.ctx.Err() != nil {
			return
		}
		if time.Since(began) > healthyAfter {
			delay = minRestartDelay
		}
		if delay < maxRestartDelay { // a permanently failing service must not fill the console
			s.logf("service %s: %s; restart in %s", svc.Name, how, delay)
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRestartDelay)
	}
}

// runOnce runs a service to its end and returns how it ended.
func (s *supervisor) runOnce(svc Service) string {
	ended, err := s.spawn(svc)
	if err != nil {
		return err.Error()
	}
	ws := <-ended
	if ws.Signaled() {
		return "killed by " + ws.Signal().String()
	}
	return fmt.Sprintf("exited with %d", ws.ExitStatus())
}

func (s *supervisor) spawn(svc Service) (<-chan unix.WaitStatus, error) {
	out, err := openLog(svc.Log)
	if err != nil {
		return nil, err
	}
	if out != os.Stderr {
		defer out.Close()
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := os.StartProcess(svc.Args[0], svc.Args, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=" + searchPath, "HOME=/root", "TERM=linux", "TMPDIR=/tmp"},
		Files: []*os.File{null, out, out},
		Sys:   &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", svc.Name, err)
	}
	c := make(chan unix.WaitStatus, 1)
	s.waiting[p.Pid] = c
	s.setOOMScore(p.Pid, svc.OOMScore)
	_ = p.Release() // reap collects it, never package os
	return c, nil
}

const searchPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func (s *supervisor) setOOMScore(pid, score int) {
	if score == 0 {
		return
	}
	path := filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj")
	if err := os.WriteFile(path, []byte(strconv.Itoa(score)), 0o644); err != nil {
		s.logf("%v", err)
	}
}

// maxLog is the size above which a service's log is rotated before its next start.
const maxLog = 8 << 20

func openLog(path string) (*os.File, error) {
	if path == "" {
		return os.Stderr, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
}
