//go:build linux

package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/machine/hostcap"
	"github.com/forkd/forkd/internal/sys/platform"
)

// Find finds the daemon, and starts it if allowed.
func Find(ctx context.Context, opt Options) (Endpoint, error) {
	p, err := DefaultPaths()
	if err != nil {
		return Endpoint{}, err
	}
	return Resolve(ctx, p, opt)
}

// Resolve is Find with the given paths.
func Resolve(ctx context.Context, p Paths, opt Options) (Endpoint, error) {
	if opt.URL != "" {
		e := Endpoint{URL: opt.URL, Token: opt.Token, Where: Named}
		if e.Token == "" {
			e.Token = tokenFor(p.Run, opt.URL)
		}
		if e.Local() {
			e.CPUs = runtime.NumCPU()
		}
		return e, nil
	}
	if err := platform.Check(runtime.GOOS, runtime.GOARCH); err != nil {
		return Endpoint{}, err
	}
	where, reason := opt.Force, "asked for"
	if where == "" {
		if e, ok := systemDaemon(ctx, p, opt); ok {
			return e, nil
		}
		where, reason = decide(ctx, p)
	}
	if where == Machine {
		return inMachine(ctx, p, opt, reason)
	}
	tellOnce(p, string(where), "on this host", reason, opt.Notice)
	return onHost(ctx, p, opt)
}

// systemDaemon returns the daemon that a package installed, if this user may use it and has no daemon
// of its own. A connection is enough: the service manager listens, and starts the daemon.
func systemDaemon(ctx context.Context, p Paths, opt Options) (Endpoint, bool) {
	if p.System == "" || p.Socket() != p.System && answers(ctx, p.SocketURL()) {
		return Endpoint{}, false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.System)
	if err != nil {
		return Endpoint{}, false
	}
	conn.Close()
	url := "unix://" + p.System
	tellOnce(p, url, "on this host", "the daemon of "+url+" answers", opt.Notice)
	return Endpoint{URL: url, Token: opt.Token, Where: Host, CPUs: runtime.NumCPU()}, true
}

// decide prefers an answering daemon of this host, because it evidently works.
func decide(ctx context.Context, p Paths) (Where, string) {
	if answers(ctx, p.SocketURL()) {
		return Host, "its daemon answers"
	}
	d := hostcap.QuickKVM(ctx).Decide()
	return placeOf(d), d.Reason
}

// Place returns where VMs run, without asking a daemon: by the flags, or otherwise by measurement.
func (f Flags) Place(ctx context.Context) Where {
	f, _ = f.Chosen()
	switch {
	case f.Host, f.ForceHost:
		return Host
	case f.Machine, f.NameOfMachine() != "":
		return Machine
	}
	return placeOf(hostcap.QuickKVM(ctx).Decide())
}

func placeOf(d hostcap.Decision) Where {
	if d.Where == hostcap.Machine {
		return Machine
	}
	return Host
}

func answers(ctx context.Context, url string) bool {
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.Health(ctx) == nil
}

// tellOnce reports where VMs run if it has changed since the last command. If the state file cannot
// be used, it reports every time.
func tellOnce(p Paths, where, place, reason string, notice func(string)) {
	file := filepath.Join(p.State, "where")
	last, _ := os.ReadFile(file)
	if strings.TrimSpace(string(last)) == where {
		return
	}
	notice(fmt.Sprintf("VMs run %s: %s", place, reason))
	if os.MkdirAll(p.State, 0o700) == nil {
		_ = os.WriteFile(file, []byte(where+"\n"), 0o600)
	}
}

func inMachine(ctx context.Context, p Paths, opt Options, reason string) (Endpoint, error) {
	m, err := appliance.Open(opt.MachineName)
	if err != nil {
		return Endpoint{}, FlagError{err}
	}
	if opt.MachineName != "" && m.Name != appliance.DefaultName && !m.Exists() {
		return Endpoint{}, NoMachine(m.Name)
	}
	tellMachine(p, m.Name, reason, opt.Notice)
	at, err := m.API()
	if errors.Is(err, appliance.ErrNotRunning) {
		if !opt.Start {
			return Endpoint{}, ErrNotRunning
		}
		if others := appliance.Running(); opt.MachineName == "" && len(others) > 0 {
			opt.Notice(fmt.Sprintf("machine %s is being started, but machine %s is running; use it with --machine-name",
				m.Name, strings.Join(others, ", ")))
		}
		opt.Progress("starting machine " + m.Name)
		if _, err = m.Start(ctx, appliance.StartOptions{Progress: opt.Progress}); err == nil {
			at, err = m.API()
		}
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("start machine %s: %w", m.Name, err)
	}
	e := Endpoint{URL: "http://" + at.Addr, Token: cmp.Or(opt.Token, at.Token), Where: Machine}
	if st, err := m.Status(ctx); err == nil {
		e.CPUs = st.CPUs
	}
	return e, waitForMachine(ctx, m, e)
}

// NoMachine returns the error for a name without a machine. A misspelled name must not create one.
func NoMachine(name string) error {
	return hints.With(&client.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("machine %s not found", name)},
		"`forkd machine start --name "+name+"` makes it")
}

// tellMachine is tellOnce for a machine.
func tellMachine(p Paths, name, reason string, notice func(string)) {
	if name == appliance.DefaultName {
		tellOnce(p, string(Machine), "in the machine", reason, notice)
		return
	}
	tellOnce(p, string(Machine)+" "+name, "in machine "+name, reason, notice)
}

// waitForMachine waits for the daemon in the machine. It starts after the agent, and the machine
// counts as ready when the agent answers.
func waitForMachine(ctx context.Context, m *appliance.Appliance, e Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for !answers(ctx, e.URL) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("machine %s runs, but the daemon in it does not answer at %s; `forkd machine logs%s` shows why",
				m.Name, e.URL, hints.MachineFlag(m.Name))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
