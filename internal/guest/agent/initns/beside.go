package initns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/initns/initpid"
)

// Renewer is the command that makes the running init use the identity of a clone.
const Renewer = "/run/forkd/forkd-init-renew"

// Renews returns Renewer if an init runs, otherwise an empty text.
func Renews() string {
	if _, found := initpid.Find(); !found {
		return ""
	}
	return Renewer
}

// renewing limits the time of Renewer.
const renewing = 15 * time.Second

// renew restarts systemd's journal, which writes and finds entries by the machine id and the boot id of its start.
// Another init has no such files.
func renew() error {
	ctx, cancel := context.WithTimeout(context.Background(), renewing)
	defer cancel()
	err := systemctl(ctx, nil, "try-restart", "systemd-journald.service")
	if errors.Is(err, errNotSystemd) {
		return nil
	}
	return err
}

// ready waits until systemd has started its units, and returns an error if it has not. Another init is ready at once.
func ready(path string) error {
	if !isSystemd(path) {
		return nil
	}
	var out bytes.Buffer
	err := systemctl(context.Background(), &out, "is-system-running", "--wait")
	switch state := strings.TrimSpace(out.String()); {
	case state == "running" || state == "degraded":
		return nil
	case state != "":
		return fmt.Errorf("the state of systemd is %.40q, want running or degraded", state)
	}
	return fmt.Errorf("ask systemd for its state: %w", err)
}

var errNotSystemd = errors.New("no systemd runs as an init here")

// systemctl runs systemctl in the PID namespace of the running init. So systemd answers it without D-Bus.
func systemctl(ctx context.Context, out *bytes.Buffer, args ...string) error {
	pid, found := initpid.Find()
	if exe := fmt.Sprintf("/proc/%d/exe", pid); !found || !isSystemd(exe) {
		return errNotSystemd
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open the init: %w", err)
	}
	defer unix.Close(fd)
	runtime.LockOSThread() // the process ends with this thread: it is never unlocked
	if err := unix.Setns(fd, unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("enter the namespace of the init: %w", err)
	}
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
