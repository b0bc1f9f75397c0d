package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/figure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/filelock"
)

// recipe is the image for the snapshots of the demo and of this program.
const recipe = "python-numpy"

// demoTag is the tag of the demo's snapshot.
const demoTag = "pyagent"

// tag returns the named snapshot. Without a name it returns the demo's, and makes it if needed.
func (a *app) tag(ctx context.Context, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return demoTag, a.forkd(ctx, "demo", "--count", "0")
}

// known formats a figure. It returns an empty string for 0.
func known(v float64, word func(float64) string) string {
	if v == 0 {
		return ""
	}
	return word(v)
}

func ratio(v float64) string { return fmt.Sprintf("%.2f", v) }

// place describes the host of the VMs.
func place(where string, cpus int) string {
	if cpus == 0 {
		return where
	}
	return fmt.Sprintf("%s, %d CPUs", where, cpus)
}

// lock allows only one run of a benchmark at a time. Otherwise a second run would take the first
// one's snapshots for leftovers of a killed run.
func lock(name string) (unlock func(), err error) {
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(paths.State, 0o700); err != nil {
		return nil, fmt.Errorf("lock bench %s: %w", name, err)
	}
	f, err := os.OpenFile(filepath.Join(paths.State, "bench-"+name+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock bench %s: %w", name, err)
	}
	if err := filelock.Try(f); err != nil {
		f.Close()
		return nil, hints.With(&client.Error{Code: api.CodeConflict,
			Message: "another forkd-bench " + name + " is under way"},
			"wait until it has ended: two at once would measure each other")
	}
	return func() { f.Close() }, nil
}

// writePlot writes a figure, with the command and the machine below it. where and cpus describe the
// daemon's host. If name is empty, it writes no plot.
func (a *app) writePlot(name string, f figure.Figure, where string, cpus int) error {
	if name == "" {
		return nil
	}
	f.Notes = append(f.Notes, "forkd-bench "+version+": forkd-bench "+strings.Join(os.Args[1:], " "),
		fmt.Sprintf("VMs on: %s; the command on: %s", place(where, cpus), machineLine()))
	out, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	if err := f.SVG(out); err != nil {
		out.Close()
		return fmt.Errorf("write plot %s: %w", filepath.Base(name), err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	a.Note("plot written to %s (%s)", name, f.Notes[len(f.Notes)-1])
	return nil
}

// machineLine describes this host's CPU and kernel, for a figure.
func machineLine() string {
	model := "CPU of unknown model"
	cpus := 0
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model, cpus = strings.TrimSpace(value), cpus+1
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d × %s, Linux %s", cpus, model, strings.TrimSpace(string(kernel)))
}

// stepLine formats steps and their times as one line.
func stepLine(steps []measure.Step) string {
	var parts []string
	for _, s := range steps {
		parts = append(parts, s.Name+" "+ui.Millis(s.MS))
	}
	return strings.Join(parts, ", ")
}
