package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var errNoProcess = errors.New("no such process")

// processStart is the start time of a live process, in clock ticks since the
// host's boot. A zombie counts as gone: it holds no disk and no port.
func processStart(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, errNoProcess
	}
	return parseStat(string(b))
}

// parseStat reads state and start time of a line of /proc/PID/stat. The
// program's name, in parentheses, may hold spaces and parentheses itself.
func parseStat(stat string) (uint64, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errNoProcess
	}
	f := strings.Fields(stat[end+1:]) // f[0] is field 3, the state
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, errNoProcess
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("start time %q: %w", f[19], err)
	}
	return start, nil
}

// orphan finds a QEMU of this machine that state.json does not know, because
// the command that started it was killed in between.
func (m *Machine) orphan() int {
	b, err := os.ReadFile(m.path(pidFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != m.Dir {
		return 0
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(cmdline), "\x00"+m.qemuName()+"\x00") {
		return 0
	}
	return pid
}

// kill ends a process and waits until it is gone.
func kill(pid int, limit time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
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
