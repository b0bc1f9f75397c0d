package initns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/forkd/forkd/internal/guest/agent/initns/initpid"
)

// Signals of systemd as the first process.
const (
	terminated = unix.SIGTERM
	powerOff   = syscall.Signal(34 + 3) // SIGRTMIN+3
)

// run runs an init in new namespaces until its end, and returns its exit code.
func run(args []string) (int, error) {
	runtime.LockOSThread() // the kernel kills the init when this thread ends, see Pdeathsig
	defer runtime.UnlockOSThread()
	terminal := term.IsTerminal(0) && term.IsTerminal(1)
	group, err := delegate("/sys/fs/cgroup")
	if err != nil {
		return 0, err
	}
	if group != nil {
		defer group.Close()
	}
	c, err := openConsole()
	if err != nil {
		return 0, err
	}
	defer c.close()
	// Volumes that the agent mounts later are the init's, too: its mounts follow those of the guest.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return 0, fmt.Errorf("share the mounts of the guest: %w", err)
	}
	cmd := command(args, c, group, terminal)
	came := make(chan os.Signal, 64)
	signal.Notify(came, forwarded()...)
	defer signal.Stop(came)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the namespaces of %s: %w", args[0], err)
	}
	stop, err := c.relay(terminal)
	if err == nil {
		err = initpid.Write(cmd.Process.Pid)
	}
	defer initpid.Remove()
	if err != nil {
		_ = cmd.Process.Kill()
	}
	ended := make(chan struct{})
	go func() {
		systemd := isSystemd(args[0])
		for {
			select {
			case <-ended:
				return
			case s := <-came:
				c.pass(s, cmd.Process, systemd, terminal)
			}
		}
	}()
	waited := cmd.Wait()
	close(ended)
	if err != nil {
		return 0, err
	}
	stop()
	if waited != nil && !errors.As(waited, new(*exec.ExitError)) {
		return 0, fmt.Errorf("wait for %s: %w", args[0], waited)
	}
	st, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return codeOf(st), nil
}

// command returns the inner process.
func command(args []string, c *console, group *os.File, terminal bool) *exec.Cmd {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{innerName, c.name}, args...), Env: environment(os.Environ(), terminal),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true, // the outer process alone gets the signals of its group
			Pdeathsig:  unix.SIGKILL,
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		},
	}
	if group != nil {
		// In this order: the process begins in the group, which becomes the root of its namespace.
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWCGROUP
	}
	if terminal {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = c.peer, c.peer, c.peer
		cmd.SysProcAttr.Setctty = true
	}
	return cmd
}

// environment adds the variables of an init to those of the image. systemd writes without colours to a dumb terminal.
func environment(env []string, terminal bool) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "container=") })
	env = append(env, "container=forkd")
	if !terminal && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") }) {
		env = append(env, "TERM=dumb")
	}
	return env
}

// forwarded returns the signals for the init. The runtime of Go uses SIGURG.
func forwarded() []os.Signal {
	var out []os.Signal
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTOU, unix.SIGTTIN:
		default:
			out = append(out, s)
		}
	}
	return out
}

// pass passes a signal on. SIGTERM reaches systemd as SIGRTMIN+3, a power-off: it would only execute itself again.
func (c *console) pass(s os.Signal, p *os.Process, systemd, terminal bool) {
	switch {
	case s == terminated && systemd:
		s = powerOff
	case s == unix.SIGWINCH && terminal:
		c.resize()
		return
	}
	_ = p.Signal(s) // it may have ended
}

// codeOf returns the exit code of an init. The kernel ends the first process of a namespace that powers off or halts
// with SIGINT, and one that reboots with SIGHUP. A restart is the caller's decision.
func codeOf(st syscall.WaitStatus) int {
	switch {
	case st.Signaled() && st.Signal() == unix.SIGINT:
		return 0
	case st.Signaled():
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}
