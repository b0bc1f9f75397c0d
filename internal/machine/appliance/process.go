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

// orphan finds a QEMU of this machine that state.json does not know, because
// the command that started it was killed in between.
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

// isOrphan asks whether a process is that, again.
func (a *Appliance) isOrphan(pid int) func() bool { return func() bool { return a.orphan() == pid } }

// kill ends the process of that number if it is the one that is meant, and waits until it is gone.
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

// pin opens a pidfd of the process of that number, or says hostproc.ErrGone if it is
// not the one that is meant: only what is asked while a pidfd is open is true of the process behind it.
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

// killPinned ends the process behind a pidfd and waits until it is gone.
func killPinned(pid, fd int, limit time.Duration) error {
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return waitGone(fd, limit)
}

// waitGone waits for the end of the process behind a pidfd.
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
