package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// app holds the global flags and the shared state of all commands.
type app struct {
	ui.Printer
	flags endpoint.Flags
	began bool // a command's own work has begun
}

func (a *app) addFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print results as JSON (docs/inside/formats/json-output.md)")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "print no notes or progress")
	f.BoolVar(&a.NoColor, "no-color", false, "print no colours, like NO_COLOR")
	a.flags.Add(cmd)
}

// completeTags lists snapshots for shell completion. It does not start a daemon.
func (a *app) completeTags(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	silent := func(string) {}
	c, _, err := a.flags.Connect(ctx, endpoint.Options{Progress: silent, Notice: silent}, "forkd-bench/"+version)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	list, _ := c.ListSnapshots(ctx)
	var tags []string
	for _, s := range list {
		tags = append(tags, s.Tag)
	}
	return tags, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) say(line string) { a.Note("%s", line) }

// bench is the measured daemon and the host of its VMs.
type bench struct {
	client *client.Client
	floors floor.Floors
	where  string
	cpus   int // 0 if unknown
	close  func()
}

// Close closes all connections.
func (b bench) Close() {
	b.close()
	b.client.Close()
}

// open finds or starts the daemon, and connects to its host.
func (a *app) open(ctx context.Context) (bench, error) {
	c, e, err := a.flags.Connect(ctx, endpoint.Options{
		Start:    true,
		Progress: func(line string) { a.Note("%s ...", line) },
		Notice:   func(line string) { a.Note("forkd-bench: %s", line) },
	}, "forkd-bench/"+version)
	if err != nil {
		return bench{}, err
	}
	b := bench{client: c, where: string(e.Where), cpus: e.CPUs, close: func() {}}
	switch {
	case e.Where == endpoint.Machine:
		m, err := appliance.Open(a.flags.NameOfMachine())
		if err != nil {
			c.Close()
			return bench{}, err
		}
		agent, err := m.Agent()
		if err != nil {
			c.Close()
			return bench{}, err
		}
		b.floors, b.close = floor.InMachine(agent), func() { agent.Close() }
	case e.Local():
		b.floors = floor.Here()
	default:
		a.Note("the host of %s is not known: there are no floors", e.URL)
	}
	return b, nil
}

// forkd runs the forkd program next to this one, with the same daemon.
func (a *app) forkd(ctx context.Context, args ...string) error {
	program, err := endpoint.Program("forkd")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append(args, a.passed()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // forkd reports any leftovers
	cmd.Stderr = a.Err
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.ExitCode() > 0 {
			return exit.Code(ended.ExitCode())
		}
		return fmt.Errorf("run forkd %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// passed returns the global flags that also apply to forkd.
func (a *app) passed() (args []string) {
	for flag, value := range map[string]string{"--url": a.flags.URL, "--token": a.flags.Token,
		"--machine-name": a.flags.MachineName, "--context": a.flags.Context} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	for flag, set := range map[string]bool{"--host": a.flags.Host, "--force-host": a.flags.ForceHost,
		"--machine": a.flags.Machine, "--quiet": a.Quiet} {
		if set {
			args = append(args, flag)
		}
	}
	return args
}
