package debtool

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is the process group led by a command. Once the leader has been waited for and the group is empty, its
// number may be reused, so signals are only sent before that.
type group struct {
	cmd *exec.Cmd

	mu     sync.Mutex // guards the fields below
	reaped bool       // or about to be reaped
}

func (g *group) signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-g.cmd.Process.Pid, sig)
}

// run runs the command. If ctx ends first, it kills the whole group.
func (g *group) run(ctx context.Context) error {
	if err := g.cmd.Start(); err != nil {
		return err
	}
	awaitEnd(g.cmd.Process.Pid)
	if ctx.Err() != nil {
		_ = g.signal(syscall.SIGKILL) // processes that ignored SIGTERM or were left behind
	}
	g.mu.Lock()
	g.reaped = true
	g.mu.Unlock()
	return g.cmd.Wait()
}

// awaitEnd waits until a child has ended, without reaping it: a zombie keeps its number.
func awaitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}
