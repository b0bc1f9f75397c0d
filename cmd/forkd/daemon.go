//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
)

func newDaemonCommand(a *app) *cobra.Command {
	return group("daemon", "Show and stop the daemon of this host",
		newDaemonStatusCommand(a),
		newDaemonStopCommand(a), newDaemonAddressCommand(a))
}

// daemonStatus describes this host's daemon. Its JSON form is part of the CLI's contract.
type daemonStatus struct {
	State   string   `json:"state"` // running, stopped, or unreachable: it runs and does not answer
	URL     string   `json:"url"`
	PID     int      `json:"pid,omitempty"`
	Version string   `json:"version,omitempty"`
	Command []string `json:"command,omitempty"`
	// Sandboxes counts running sandboxes. Paused ones do not need the daemon.
	Sandboxes int    `json:"sandboxes"`
	Log       string `json:"log,omitempty"` // if a command started the daemon
	// Machine is the machine that the daemon runs in. It is empty for the daemon of this host.
	Machine string `json:"machine,omitempty"`
}

// States of a daemonStatus.
const (
	daemonRunning     = "running"
	daemonStopped     = "stopped"
	daemonUnreachable = "unreachable"
)

func newDaemonStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether a daemon runs on this host, and its settings",
		Long: "Show whether a daemon runs on this host, and how it was started. The command does not start a\n" +
			"daemon. With --machine, --machine-name or FORKD_MACHINE it shows the daemon in that machine.\n\n" +
			"The exit code is 0 if the daemon answers, otherwise 3.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := statusOfDaemon(cmd.Context(), a)
			if err != nil {
				return err
			}
			if a.JSON {
				err = a.Value(st)
			} else {
				err = printDaemon(a, st)
			}
			if err == nil && st.State != daemonRunning {
				return exit.Code(3)
			}
			return err
		},
	}
}

// statusOfDaemon returns the status of this host's daemon, or of a machine's.
func statusOfDaemon(ctx context.Context, a *app) (daemonStatus, error) {
	if meansMachine(a) {
		return machineDaemon(ctx, a)
	}
	at, err := localDaemon(a)
	if err != nil {
		return daemonStatus{}, err
	}
	return at.status(ctx), nil
}

func printDaemon(a *app, st daemonStatus) error {
	facts := []string{"state", st.State, "url", st.URL}
	if st.Machine != "" {
		facts = append(facts, "machine", st.Machine, "version", st.Version)
		if st.State == daemonRunning {
			facts = append(facts, "sandboxes", fmt.Sprint(st.Sandboxes))
		}
	}
	if st.PID != 0 {
		facts = append(facts, "process", fmt.Sprint(st.PID), "version", st.Version)
		facts = append(facts, "command", strings.Join(st.Command, " "), "sandboxes", fmt.Sprint(st.Sandboxes), "log", st.Log)
	}
	return a.Facts(facts...)
}

func newDaemonStopCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon of this host; sandboxes keep running",
		Long: "Stop the daemon of this host, and wait until it has exited. Sandboxes keep running, and the next\n" +
			"daemon adopts them, unless the daemon was started with --kill-on-stop.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := localDaemon(a)
			if err != nil {
				return err
			}
			st := at.status(cmd.Context())
			if st.State == daemonStopped {
				return saidDaemon(a, st, "no daemon runs on this host")
			}
			if err := at.stop(cmd.Context(), st.PID); err != nil {
				return err
			}
			if n := st.Sandboxes; n > 0 {
				a.Note("running sandboxes: %d; they keep running unless the daemon had --kill-on-stop, and the next "+
					"daemon adopts them", n)
			}
			st.State = daemonStopped
			return saidDaemon(a, st, fmt.Sprintf("daemon %d is stopped", st.PID))
		},
	}
}

func saidDaemon(a *app, st daemonStatus, line string) error {
	if a.JSON {
		return a.Value(st)
	}
	return a.Line("%s", line)
}

// daemonSocket is a daemon's Unix socket on this host.
type daemonSocket struct{ path, token, log string }

// localDaemon returns the named daemon, which must be on this host, or this user's daemon.
func localDaemon(a *app) (daemonSocket, error) {
	f, err := a.flags.Chosen()
	if err != nil {
		return daemonSocket{}, exit.UsageError{Err: err}
	}
	named := f.URL
	if named == "" && !f.Host && !f.ForceHost {
		named = f.NamedURL()
	}
	if meansMachine(a) {
		return daemonSocket{}, hints.With(exit.UsageError{Err: errors.New("a machine's daemon ends with its machine")},
			"`forkd machine stop` stops both")
	}
	if named == "" {
		p, err := endpoint.DefaultPaths()
		return daemonSocket{path: p.Socket(), token: f.Token, log: p.ServeLog()}, err
	}
	u, err := url.Parse(named)
	if err != nil || u.Scheme != "unix" {
		return daemonSocket{}, exit.UsageError{Err: fmt.Errorf("%s: want unix:///PATH, a daemon of this host", named)}
	}
	return daemonSocket{path: filepath.Clean(u.Path), token: f.Token}, nil
}

func (d daemonSocket) url() string { return "unix://" + d.path }

// pid returns the process behind the socket, as the kernel reports it. It is 0 if there is none.
func (d daemonSocket) pid() int {
	c, err := net.DialTimeout("unix", d.path, time.Second)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

func (d daemonSocket) status(ctx context.Context) daemonStatus {
	st := daemonStatus{State: daemonStopped, URL: d.url(), PID: d.pid()}
	if st.PID == 0 {
		return st
	}
	st.State = daemonUnreachable
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.PID)); err == nil {
		st.Command = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	}
	if _, err := os.Stat(d.log); err == nil {
		st.Log = d.log
	}
	st.ask(ctx, client.Options{URL: st.URL, Token: d.token})
	return st
}

// daemonEnd limits the end of a daemon: requests in flight, then the engine, then its helpers.
const daemonEnd = 2*stopGrace + 10*time.Second

// stop asks the listening process to end, and waits for its end.
func (d daemonSocket) stop(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if d.pid() != pid { // it has ended, and its process ID may be reused
		return errors.New("the daemon ended, or another one started")
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop daemon %d: %w", pid, err)
	}
	for end := time.Now().Add(daemonEnd); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for daemon %d: %w", pid, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("daemon %d does not end", pid)
		}
	}
}
