package debtool

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is the process group that a command leads. Its number is its own only
// until the leader has been waited for, and nobody is left in it: signals go to it before.
type group struct {
	cmd *exec.Cmd

	mu     sync.Mutex // guards what follows
	reaped bool       // or about to be
}

func (g *group) signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-g.cmd.Process.Pid, sig)
}

// run runs the command. If ctx ends first, nothing of the group is left.
func (g *group) run(ctx context.Context) error {
	if err := g.cmd.Start(); err != nil {
		return err
	}
	awaitEnd(g.cmd.Process.Pid)
	if ctx.Err() != nil {
		_ = g.signal(syscall.SIGKILL) // what ignored the SIGTERM or was left behind, if there is anything
	}
	g.mu.Lock()
	g.reaped = true
	g.mu.Unlock()
	return g.cmd.Wait()
}

// awaitEnd waits until a child has ended, and leaves it as it is: a zombie keeps its number.
func awaitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}
