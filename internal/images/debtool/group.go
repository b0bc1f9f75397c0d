package debtool

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper is the shell script that leads a process group. Its input has no data, and ends with this process: a tool and
// its children then end, too. It ignores the signals that ask the group to end.
const keeper = `trap "" HUP INT TERM; read -r line; kill -KILL 0`

// group is the process group of a tool, led by the keeper. Once the leader has been waited for, its number may be
// reused, so signals are only sent before that.
type group struct {
	leader *exec.Cmd
	open   *os.File // the leader's input ends when this is closed

	mu    sync.Mutex // guards the field below
	ended bool       // or about to end
}

func newGroup() (*group, error) {
	input, output, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	g := &group{leader: exec.Command("/bin/sh", "-c", keeper), open: output}
	g.leader.Stdin = input
	g.leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.leader.Start(); err != nil {
		output.Close()
		return nil, fmt.Errorf("start a process group: %w", err)
	}
	return g, nil
}

func (g *group) signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return os.ErrProcessDone
	}
	return syscall.Kill(-g.leader.Process.Pid, sig)
}

// end kills what is left of the group: processes that ignored SIGTERM or were left behind.
func (g *group) end() {
	_ = g.signal(syscall.SIGKILL)
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.open.Close()
	_ = g.leader.Wait()
}

// run runs the command in the group, which ends with it.
func (g *group) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.leader.Process.Pid}
	if err := cmd.Start(); err != nil {
		g.end()
		return err
	}
	awaitEnd(cmd.Process.Pid)
	g.end()
	return cmd.Wait()
}

// awaitEnd waits until a child has ended, without reaping it: the end of its group must not change its result.
func awaitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}
