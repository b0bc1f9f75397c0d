package appliance

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

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// stopWait is the time for the appliance to end its services and unmount.
const stopWait = 30 * time.Second

// Stop stops the machine. The data disk stays. It returns ErrNotRunning if the machine is not running.
func (a *Appliance) Stop(ctx context.Context) error {
	if _, err := os.Stat(a.Dir); errors.Is(err, os.ErrNotExist) {
		return ErrNotRunning // lock would create the directory
	}
	unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := a.running()
	if errors.Is(err, ErrNotRunning) {
		if pid := a.orphan(); pid != 0 {
			return kill(pid, a.isOrphan(pid), 10*time.Second)
		}
	}
	if err != nil {
		return err
	}
	return a.stopLocked(ctx, s)
}

// stopLocked asks the appliance to power off. If it does not, stopLocked makes QEMU quit, or kills it.
func (a *Appliance) stopLocked(ctx context.Context, s state) error {
	fd, err := pin(s.PID, s.alive)
	if errors.Is(err, hostproc.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop QEMU: %w", err)
	}
	defer unix.Close(fd)
	if err := a.requestPowerOff(ctx); err == nil && waitGone(fd, stopWait) == nil {
		return nil
	}
	// A dead guest's disk is as consistent as its journal; quit flushes QEMU's own caches.
	if err := a.qmpQuit(ctx); err == nil && waitGone(fd, 10*time.Second) == nil {
		return nil
	}
	return killPinned(s.PID, fd, 10*time.Second)
}

// requestPowerOff asks the appliance's init to stop, over the control port.
func (a *Appliance) requestPowerOff(ctx context.Context) error {
	answer, err := a.control(ctx, "poweroff")
	if err == nil && answer != "ok" {
		err = fmt.Errorf("answer is %q", answer)
	}
	if err != nil {
		return fmt.Errorf("ask for power-off: %w", err)
	}
	return nil
}

// control sends one line to the appliance's init and returns its answer.
func (a *Appliance) control(ctx context.Context, line string) (string, error) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := a.dialSocket(ctx, ctlSocket)
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

// Remove stops the machine and deletes its directory, including the data disk.
func (a *Appliance) Remove(ctx context.Context) error {
	if err := a.Stop(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(a.Dir)
}
