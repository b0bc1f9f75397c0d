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
		"how many times the host's memory may be promised to sandboxes: each is promised its guest's memory, or its limit")
	f.Float64Var(&o.disk, "disk-overcommit", 0,
		"how many times the file system of --data may be promised to their disks; 0: any number of times")
	f.StringArrayVar(&o.pressure, "pressure", nil,
		"pressure on the host (PSI) from which fewer sandboxes are made at once, and none: cpu, memory or io=FEWER:NONE in "+
			"percent, or =off; may be given more than once (default: memory=20:60)")
	f.DurationVar(&o.pauseUnused, "pause-under-pressure", 0,
		"while work waits for memory as in --pressure memory=FEWER, pause sandboxes with --auto-resume that were not used "+
			"for so long, such as 5m: one after the other, the longest unused first (default: none is)")
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
