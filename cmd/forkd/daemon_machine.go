//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// meansMachine reports whether the flags or the environment name a machine instead of this host's
// daemon, by the rules of other commands.
func meansMachine(a *app) bool {
	f, _ := a.flags.Chosen() // localDaemon reports its error
	if f.Machine || f.MachineName != "" {
		return true
	}
	return f.NameOfMachine() != "" && !f.Host && !f.ForceHost && f.NamedURL() == ""
}

// machineDaemon returns the status of the daemon in the machine. It starts no machine.
func machineDaemon(ctx context.Context, a *app) (daemonStatus, error) {
	m, err := appliance.Open(a.flags.NameOfMachine())
	if err != nil {
		return daemonStatus{}, exit.UsageError{Err: err}
	}
	if !m.Exists() && m.Name != appliance.DefaultName {
		return daemonStatus{}, endpoint.NoMachine(m.Name)
	}
	st := daemonStatus{State: daemonStopped, Machine: m.Name}
	at, err := m.API()
	switch {
	case errors.Is(err, appliance.ErrNotRunning):
		return st, nil
	case err != nil:
		return st, err
	}
	st.URL, st.State = "http://"+at.Addr, daemonUnreachable
	st.ask(ctx, client.Options{URL: st.URL, Token: at.Token})
	return st, nil
}

// ask fills in the answers of the daemon, if it answers.
func (st *daemonStatus) ask(ctx context.Context, opt client.Options) {
	opt.UserAgent = "forkd-cli/" + version
	c, err := client.New(opt)
	if err != nil {
		return
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if v, err := c.Version(ctx); err == nil {
		st.State, st.Version = daemonRunning, v.Version
	}
	if ids, err := runningIn(ctx, c); err == nil {
		st.Sandboxes = len(ids)
	}
}
