//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/leaf/undo"
	spawner "github.com/forkd/forkd/internal/vm/spawner/client"
)

// jailMode selects the confinement of VMs.
type jailMode string

const (
	jailOff    jailMode = "off"    // VMs run as the daemon's user
	jailBest   jailMode = "best"   // every part that this host supports
	jailStrict jailMode = "strict" // every part; otherwise the daemon does not serve

	// defaultJail equals strict if the host supports every part.
	defaultJail = jailBest
)

// jailOptions are the daemon's flags for the jail.
type jailOptions struct {
	mode   string
	binary string
}

func (o *jailOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.mode, "jail", string(defaultJail),
		"confine VM processes in `MODE`: off, best (as far as this host can) or strict (fail otherwise)")
	f.StringVar(&o.binary, "spawn", "",
		"start jailed VMs with the forkd-spawn program `FILE` (default: beside forkd)")
}

// checkJail checks the value of --jail.
func checkJail(mode string) error {
	switch jailMode(mode) {
	case jailOff, jailBest, jailStrict:
		return nil
	}
	return exit.UsageError{Err: fmt.Errorf("--jail %q: want off, best or strict", mode)}
}

// complete checks the flags, and looks for forkd-spawn.
func (o *jailOptions) complete() error {
	if err := checkJail(o.mode); err != nil {
		return err
	}
	if jailMode(o.mode) == jailOff || o.binary != "" {
		return nil
	}
	binary, err := endpoint.Program("forkd-spawn")
	if errors.Is(err, os.ErrNotExist) && jailMode(o.mode) == jailBest {
		return nil // the log and doctor report it
	}
	o.binary = binary
	return err
}

// configure makes an engine start VMs in a jail.
func (o *jailOptions) configure(ctx context.Context, c *engine.Config, log *slog.Logger, opened *undo.Stack) error {
	if jailMode(o.mode) == jailOff {
		return nil
	}
	if o.binary == "" {
		log.Warn("forkd-spawn is not beside forkd: VMs are in no jail")
		return nil
	}
	confineSelf(log) // before forkd-spawn starts, so that a restarted one has the same rights
	s, err := spawner.Open(ctx, spawner.Config{Binary: o.binary, Strict: jailMode(o.mode) == jailStrict, Log: log})
	if errors.Is(err, spawner.ErrMissing) {
		return exit.UsageError{Err: fmt.Errorf("--jail strict: %w (see forkd doctor)", err)}
	}
	if err != nil {
		return err
	}
	opened.Push(s.Close)
	c.Starter = s
	log.Info("VMs are in a jail", "parts", s.Want().String())
	return nil
}
