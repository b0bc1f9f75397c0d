//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/settings"
)

// admissionOptions set the over-commit of resources, and the pressure at which fewer VMs are made.
type admissionOptions struct {
	memory, disk float64 // over-commit
	pressure     []string
	parsed       settings.Pressure
	pauseUnused  time.Duration
}

func (o *admissionOptions) addFlags(f *pflag.FlagSet) {
	f.Float64Var(&o.memory, "memory-overcommit", settings.DefaultMemoryOvercommit,
		"promise sandboxes up to `RATIO` times the host's memory; a sandbox counts with its guest's memory, "+
			"or its limit")
	f.Float64Var(&o.disk, "disk-overcommit", 0,
		"promise sandbox disks up to `RATIO` times the file system of --data; 0: unlimited")
	f.StringArrayVar(&o.pressure, "pressure", nil,
		"start fewer or no sandboxes at a time under host pressure (PSI) of `RESOURCE=FEWER:NONE` percent, "+
			"or RESOURCE=off; RESOURCE: cpu, memory or io; may be repeated (default: memory=20:60)")
	f.DurationVar(&o.pauseUnused, "pause-under-pressure", 0,
		"under memory pressure, pause --auto-resume sandboxes idle for more than `DURATION`, longest idle "+
			"first (default: off)")
}

func (o *admissionOptions) complete() (err error) {
	if !(o.memory > 0) {
		return exit.UsageError{Err: fmt.Errorf("--memory-overcommit is %g, want more than 0", o.memory)}
	}
	if !(o.disk >= 0) {
		return exit.UsageError{Err: fmt.Errorf("--disk-overcommit is %g, want at least 0", o.disk)}
	}
	if d := o.pauseUnused; d != 0 && (d < sandbox.MinLife || d > sandbox.MaxLife) {
		return exit.UsageError{Err: fmt.Errorf("--pause-under-pressure is %s, want %s to %s, or 0 for none", d,
			sandbox.MinLife, sandbox.MaxLife)}
	}
	if o.parsed, err = settings.ParsePressure(o.pressure); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--pressure %w", err)}
	}
	return nil
}

func (o *admissionOptions) configure(c *engine.Config) {
	c.MemoryOvercommit, c.DiskOvercommit, c.Pressure = o.memory, o.disk, &o.parsed
	c.PauseUnused = o.pauseUnused
}
