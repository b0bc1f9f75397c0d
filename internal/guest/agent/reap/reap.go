// Package reap owns the waiting for child processes. The agent may be PID 1,
// where every orphan of the guest becomes its child: somebody must reap those
// without stealing the exit status of a child that somebody else waits for. So
// there is one waiter, and whoever starts a process does it here. The trap:
// os/exec's Wait and Run must not be used in a program that has a Reaper with
// orphans; Start and Done replace them.
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

// Reaper waits for children. Run must be running for anything to be reaped.
type Reaper struct {
	// Ended, if set before Run, hears after processes have ended: of them and of those that they waited
	// for, the one that had the most memory at a time, in bytes.
	Ended func(had int64)

	orphans bool

	// mu is held from before a child exists until it is in the table, and
	// while reaping: no status can be seen whose owner is not yet known.
	mu       sync.Mutex
	children map[int]*Child
	had      int64 // for Ended; 0: none has ended since
}

// Child is a process started by a Reaper.
type Child struct {
	Pid int

	r      *Reaper
	done   chan struct{}
	status unix.WaitStatus // valid after done is closed
}

// New makes a reaper. With orphans it reaps every child there is, as PID 1 and
// subreapers must; without, only those it started.
func New(orphans bool) *Reaper {
	return &Reaper{orphans: orphans, children: map[int]*Child{}}
}

// Run reaps until ctx ends. It wakes only when a child changes state.
func (r *Reaper) Run(ctx context.Context) error {
	if r.orphans {
		// Descendants of a double fork come to us and not to a PID 1 above.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become subreaper: %w", err)
		}
	}
	// One slot: signals coalesce, and each wake-up looks at everything.
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

// Start starts cmd and waits for it from now on. Preconditions: cmd has no
// context, and its stdin, stdout and stderr are nil or *os.File.
func (r *Reaper) Start(cmd *exec.Cmd) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := timerslack.Starting(timerslack.Default, cmd.Start); err != nil { // not the agent's own
		return nil, err
	}
	c := &Child{Pid: cmd.Process.Pid, r: r, done: make(chan struct{})}
	r.children[c.Pid] = c
	// The handle is not needed: a pid in the table cannot be used again.
	_ = cmd.Process.Release()
	return c, nil
}

// Done is closed when the child has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// HasEnded tells whether Done is closed.
func (c *Child) HasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Status tells how it ended. Preconditions: Done is closed.
func (c *Child) Status() unix.WaitStatus { return c.status }

// Signal signals the child; after its end it returns os.ErrProcessDone.
func (c *Child) Signal(sig unix.Signal) error { return c.signal(c.Pid, sig) }

// SignalGroup signals the process group that the child leads.
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

// reapOneLocked reaps pid, or any child for -1, and reports whether it did.
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
