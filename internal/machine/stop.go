package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stopWait is how long the appliance gets to end its services and unmount.
const stopWait = 30 * time.Second

// Stop ends the machine; the data disk stays. It returns ErrNotRunning if there
// is nothing to stop.
func (m *Machine) Stop(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := m.running()
	if errors.Is(err, ErrNotRunning) {
		if pid := m.orphan(); pid != 0 {
			return kill(pid, 10*time.Second)
		}
	}
	if err != nil {
		return err
	}
	return m.stopLocked(ctx, s)
}

// stopLocked asks the appliance to power off, and pulls the plug if it does not.
func (m *Machine) stopLocked(ctx context.Context, s state) error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open QEMU process: %w", err)
	}
	defer unix.Close(fd)
	if err := m.requestPowerOff(ctx); err == nil && waitGone(fd, stopWait) == nil {
		return nil
	}
	// A dead guest's disk is as consistent as its journal; QEMU's own caches are flushed by quit.
	if err := m.qmpQuit(ctx); err == nil && waitGone(fd, 10*time.Second) == nil {
		return nil
	}
	return kill(s.PID, 10*time.Second)
}

// requestPowerOff tells the appliance's init, over the control port, to stop.
func (m *Machine) requestPowerOff(ctx context.Context) error {
	answer, err := m.control(ctx, "poweroff")
	if err == nil && answer != "ok" {
		err = fmt.Errorf("answer is %q", answer)
	}
	if err != nil {
		return fmt.Errorf("ask for power-off: %w", err)
	}
	return nil
}

// control sends one line to the appliance's init and returns its answer.
func (m *Machine) control(ctx context.Context, line string) (string, error) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := m.dialSocket(ctx, ctlSocket)
	if err != nil {
		return "", fmt.Errorf("dial control port: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", fmt.Errorf("write to control port: %w", err)
	}
	answer, err := bufio.NewReader(io.LimitReader(c, 64<<10)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read from control port: %w", err)
	}
	return strings.TrimSpace(answer), nil
}

// Remove stops the machine and deletes its directory with the data disk.
func (m *Machine) Remove(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(m.Dir)
}
