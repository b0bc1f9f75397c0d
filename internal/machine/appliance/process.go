package appliance

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// orphan finds a QEMU of this machine that is missing in state.json because the command that started it was
// killed.
func (a *Appliance) orphan() int {
	b, err := os.ReadFile(a.path(pidFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != a.Dir {
		return 0
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(cmdline), "\x00"+a.qemuName()+"\x00") {
		return 0
	}
	return pid
}

// isOrphan returns a function that checks again whether a process is the orphan.
func (a *Appliance) isOrphan(pid int) func() bool { return func() bool { return a.orphan() == pid } }

// kill kills the process if meant confirms it, and waits until it is gone.
func kill(pid int, meant func() bool, limit time.Duration) error {
	fd, err := pin(pid, meant)
	if errors.Is(err, hostproc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return killPinned(pid, fd, limit)
}

// pin opens a pidfd of a process. If meant does not confirm the process, it returns hostproc.ErrGone. meant is
// called while the pidfd is open, so that its answer refers to the same process.
func pin(pid int, meant func() bool) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, hostproc.ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	if !meant() {
		unix.Close(fd)
		return 0, hostproc.ErrGone
	}
	return fd, nil
}

// killPinned kills the process of a pidfd and waits until it is gone.
func killPinned(pid, fd int, limit time.Duration) error {
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return waitGone(fd, limit)
}

// waitGone waits until the process of a pidfd has ended.
func waitGone(pidfd int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("process did not end in time")
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
}
