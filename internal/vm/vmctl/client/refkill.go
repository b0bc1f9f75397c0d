package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// killWait is the time limit for a killed process to disappear. Freeing a large VM takes tens of
// milliseconds.
const killWait = 10 * time.Second

// Kill ends the process of a reference without talking to it, and waits until it is gone. It
// returns nil if the process is gone already, or if its pid belongs to another process.
func (r Ref) Kill() error {
	pidfd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill VMM %d: %w", r.PID, err)
	}
	defer unix.Close(pidfd)
	// The pidfd pins the process. Without it, comparing the start time would prove nothing.
	if start, err := hostproc.StartTime(r.PID); err != nil || start != r.StartTime {
		return nil
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill VMM %d: %w", r.PID, err)
	}
	return waitPidfd(pidfd, killWait)
}

func waitPidfd(pidfd int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 100)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return errors.New("killed VMM is still there")
		}
	}
}
