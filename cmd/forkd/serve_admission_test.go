//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/settings"
)

func admissionOptionsOf(t *testing.T, args ...string) (o admissionOptions, err error) {
	t.Helper()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o, o.complete()
}

func TestTheFlagsOfAdmissionAreTheEngines(t *testing.T) {
	for name, c := range map[string]struct {
		args         []string
		memory, disk float64
		want         settings.Pressure
	}{
		"by default": {nil, 32, 0, settings.DefaultPressure()},
		"all": {[]string{"--memory-overcommit", "1.5", "--disk-overcommit", "4", "--pressure", "memory=off", "--pressure", "io=70:90"},
			1.5, 4, settings.Pressure{IO: settings.Bound{Fewer: 70, None: 90}}},
	} {
		o, err := admissionOptionsOf(t, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		var got engine.Config
		o.configure(&got)
		if got.MemoryOvercommit != c.memory || got.DiskOvercommit != c.disk || *got.Pressure != c.want {
			t.Errorf("%s: %g, %g, %+v", name, got.MemoryOvercommit, got.DiskOvercommit, *got.Pressure)
		}
	}
}

func TestBadFlagsOfAdmission(t *testing.T) {
	for args, says := range map[string]string{
		"--memory-overcommit=0":   "--memory-overcommit is 0, want more than 0",
		"--memory-overcommit=-1":  "--memory-overcommit is -1, want",
		"--memory-overcommit=NaN": "--memory-overcommit is NaN, want",
		"--disk-overcommit=-2":    "--disk-overcommit is -2, want at least 0",
		"--pressure=swap=1:2":     `--pressure "swap=1:2": want cpu=, memory= or io=`,
		"--pressure=io=1":         `--pressure "io=1": want FEWER:NONE in percent, such as 20:60, or off`,
		"--pressure=cpu=90:200":   `--pressure "cpu=90:200": "200" is no percentage above 0`,
	} {
		_, err := admissionOptionsOf(t, args)
		if !errors.As(err, &exit.UsageError{}) || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, want %s", args, err, says)
		}
	}
}
