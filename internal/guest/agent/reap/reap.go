// Package reap waits for child processes. The agent may be PID 1, and every orphan of the guest
// then becomes its child. Orphans must be reaped without taking the exit status from another
// waiter. So this package is the only waiter, and all processes are started through it. In a
// program that has a Reaper with orphans, do not use Wait and Run of os/exec; use Start and Done.
package reap

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/timerslack"
)

// Reaper waits for children. It reaps only while Run runs.
type Reaper struct {
	// Ended, if set before Run, is called after processes have ended. had is the largest peak
	// memory of these processes and of their own waited-for children, in bytes.
	Ended func(had int64)

	orphans bool

	// mu is held from before a child exists until it is in the table, and while reaping. So every
	// status belongs to a known owner.
	mu       sync.Mutex
	children map[int]*Child
	had      int64 // for Ended; 0 if no process has ended since
}

// Child is a process started by a Reaper.
type Child struct {
	Pid int // may be reused once the child is reaped

	r      *Reaper
	done   chan struct{}
	status unix.WaitStatus // valid after done is closed
}

// New returns a reaper. With orphans it reaps all children, as PID 1 and subreapers must. Otherwise
// it reaps only children it has started.
func New(orphans bool) *Reaper {
	return &Reaper{orphans: orphans, children: map[int]*Child{}}
}

// Run reaps until ctx ends. It wakes only when a child changes state.
func (r *Reaper) Run(ctx context.Context) error {
	if r.orphans {
		// Descendants of a double fork become children of this process and not of a PID 1 above.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become subreaper: %w", err)
		}
	}
	// One slot is enough: signals coalesce, and each wake-up checks all children.
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, unix.SIGCHLD)
	defer signal.Stop(wake)
	for {
		r.reap()
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}

// Start starts cmd and waits for it from then on. cmd must have no context, and its stdin, stdout
// and stderr must be nil or *os.File.
func (r *Reaper) Start(cmd *exec.Cmd) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := timerslack.Starting(timerslack.Default, cmd.Start); err != nil { // not the agent's own slack
		return nil, err
	}
	c := &Child{Pid: cmd.Process.Pid, r: r, done: make(chan struct{})}
	r.children[c.Pid] = c
	// The handle is not needed: a pid in the table is not reused.
	_ = cmd.Process.Release()
	return c, nil
}

// Adopt takes over a child of this process that was started before Run. Its program was started by
// an earlier program of this process.
func (r *Reaper) Adopt(pid int) *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Child{Pid: pid, r: r, done: make(chan struct{})}
	r.children[pid] = c
	return c
}

// Suspend stops reaping, and starting processes, until release is called. It returns the children that
// have not ended, or have not been reaped yet.
func (r *Reaper) Suspend() (children map[int]bool, release func()) {
	r.mu.Lock()
	children = make(map[int]bool, len(r.children))
	for pid := range r.children {
		children[pid] = true
	}
	return children, r.mu.Unlock
}

// Done returns a channel that is closed when the child has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// HasEnded reports whether Done is closed.
func (c *Child) HasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Status returns the exit status. Done must be closed.
func (c *Child) Status() unix.WaitStatus { return c.status }

// Signal signals the child. After its end it returns os.ErrProcessDone.
func (c *Child) Signal(sig unix.Signal) error { return c.signal(c.Pid, sig) }

// SignalGroup signals the process group led by the child.
func (c *Child) SignalGroup(sig unix.Signal) error { return c.signal(-c.Pid, sig) }

func (c *Child) signal(target int, sig unix.Signal) error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.children[c.Pid] != c {
		return os.ErrProcessDone
	}
	if err := unix.Kill(target, sig); err != nil {
		return fmt.Errorf("signal process %d: %w", c.Pid, err)
	}
	return nil
}

func (r *Reaper) reap() {
	if had := r.reapAll(); had > 0 && r.Ended != nil {
		r.Ended(had)
	}
}

func (r *Reaper) reapAll() (had int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.had = 0
	if r.orphans {
		for r.reapOneLocked(-1) {
		}
		return r.had
	}
	for pid := range r.children {
		r.reapOneLocked(pid)
	}
	return r.had
}

// reapOneLocked reaps pid, or any child if pid is -1, and reports whether it did.
func (r *Reaper) reapOneLocked(pid int) bool {
	var ws unix.WaitStatus
	var used unix.Rusage
	got, err := unix.Wait4(pid, &ws, unix.WNOHANG, &used)
	for err == unix.EINTR {
		got, err = unix.Wait4(pid, &ws, unix.WNOHANG, &used)
	}
	if err != nil || got <= 0 {
		return false
	}
	r.had = max(r.had, used.Maxrss<<10)
	if c := r.children[got]; c != nil {
		delete(r.children, got)
		c.status = ws
		close(c.done)
	}
	return true
}
