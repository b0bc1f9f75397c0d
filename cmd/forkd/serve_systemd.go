//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/user"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/listen"
)

// activated returns the sockets bound by a service manager: sd_listen_fds(3). Child processes do not
// inherit the variables that announce them.
func activated() ([]net.Listener, error) {
	all, err := activation.Listeners()
	for i, l := range all {
		if l == nil {
			err = errors.Join(err, fmt.Errorf("the service manager passed descriptor %d, which is not a listening socket", 3+i))
		}
	}
	return all, err
}

// adopt makes listeners of the sockets bound by a service manager.
func (o *serveOptions) adopt(binding listen.Binding) (all []listen.Listener, err error) {
	for _, bound := range o.sockets {
		l, err := binding.Adopt(bound)
		if err != nil {
			return nil, exit.UsageError{Err: fmt.Errorf("socket of the service manager: %w", err)}
		}
		all = append(all, l)
	}
	return all, nil
}

// socketGroupID returns the ID of the group whose members may use Unix sockets. nil: none.
func (o *serveOptions) socketGroupID() (*uint32, error) {
	if o.socketGroup == "" {
		return nil, nil
	}
	g, err := user.LookupGroup(o.socketGroup)
	if err != nil {
		if _, numeric := strconv.ParseUint(o.socketGroup, 10, 32); numeric != nil {
			return nil, exit.UsageError{Err: fmt.Errorf("--socket-group %q: this host has no such group", o.socketGroup)}
		}
		g = &user.Group{Gid: o.socketGroup}
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	id := uint32(n)
	return &id, err
}

// notifySystemd reports the daemon's state to a service manager, if there is one: sd_notify(3).
func notifySystemd(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("notify service manager", "error", err)
	}
}

// watchdog tells a service manager with a watchdog that the daemon works, until ctx ends. alive must
// return; if it blocks, the manager restarts the daemon.
func watchdog(ctx context.Context, alive func(), log *slog.Logger) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within == 0 {
		return
	}
	tick := time.NewTicker(within / 3)
	defer tick.Stop()
	for {
		alive()
		notifySystemd(log, daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
