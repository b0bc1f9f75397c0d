//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/machine/appliance"
)

func newMachineStartCommand(name *machineName) *cobra.Command {
	var opt appliance.StartOptions
	var network machineNetOptions
	var config string
	end := &machineEnd{app: name.app}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the machine unless it runs",
		Long: "Start the machine unless it runs with the given values. If it runs with other values,\n" +
			"the command fails. With --restart it pauses the sandboxes in the machine, restarts it, and resumes\n" +
			"them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cmd.Flags().Changed("jail") {
				err = checkJail(opt.Jail)
			}
			if err != nil {
				return err
			}
			if opt.Network, err = network.change(cmd.Flags()); err != nil {
				return err
			}
			if cmd.Flags().Changed("serve-config") {
				if opt.Serve, err = serveConfig(name.app, config); err != nil {
					return err
				}
			}
			m, err := name.open()
			if err != nil {
				return err
			}
			opt.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			opt.Retire = func(ctx context.Context) error { return end.settle(ctx, cmd, m) }
			res, err := m.Start(cmd.Context(), opt)
			if err != nil {
				end.tellPaused(m)
				return differing(err)
			}
			end.after(cmd.Context(), m)
			if name.app.JSON {
				return name.app.Value(startReport{m.Name, res.Already, res.Stale, res.Took.Seconds()})
			}
			fmt.Fprintln(cmd.OutOrStdout(), describeStart(m, res))
			if m.Name != appliance.DefaultName {
				name.app.Note("other commands use it with --machine-name %s, or FORKD_MACHINE=%s", m.Name, m.Name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&opt.Spec.CPUs, "cpus", 0, "give the machine `N` virtual CPUs (default: the host's, up to 8)")
	f.IntVar(&opt.Spec.MemoryMiB, "memory", 0,
		"give the machine `MIB` of memory (default: half of the host's, up to 6144)")
	f.IntVar(&opt.Spec.DiskGiB, "disk", 0,
		"set the size of the sparse data disk to `GIB`; it can only grow (default: 20)")
	f.BoolVar(&opt.Restart, "restart", false, "restart a running machine with other programs or settings")
	f.DurationVar(&opt.Wait, "wait", appliance.DefaultStartWait, "wait up to `DURATION` for the machine to answer")
	f.StringVar(&opt.Jail, "jail", "", "confine VM processes in `MODE`: off, best (as far as possible) or strict (fail otherwise) "+
		"(default: as before, initially "+string(defaultJail)+")")
	f.StringVar(&config, "serve-config", "",
		"read further flags of the machine's forkd serve from `FILE`, one per line; none: remove them "+
			"(default: as before)")
	f.StringVar(&opt.Kernel, "kernel", "", "boot the machine's kernel `SERIES` or package, for this start only")
	_ = f.MarkHidden("kernel") // the flag exists, so it cannot fail
	section(f, "Network", network.addFlags)
	end.addFlags(cmd, true, ", with --restart")
	f.Lookup("pause").Usage = "pause running sandboxes, and resume them afterwards, with --restart"
	return cmd
}

// differing gives a code to the error about a machine with other values.
func differing(err error) error {
	if errors.Is(err, appliance.ErrDiffers) {
		return codedError{err, api.CodeConflict}
	}
	return err
}

// startReport is the result of machine start --json.
type startReport struct {
	Name    string  `json:"name"`
	Already bool    `json:"already"` // it was already running
	Stale   bool    `json:"stale"`   // and has older programs or other settings
	TookS   float64 `json:"took_s"`
}

func describeStart(m *appliance.Appliance, res appliance.StartResult) string {
	switch {
	case res.Stale:
		return fmt.Sprintf("machine %s runs, with older programs or other settings; `forkd machine start%s --restart` updates it",
			m.Name, hints.MachineFlag(m.Name))
	case res.Already:
		return fmt.Sprintf("machine %s runs already", m.Name)
	}
	return fmt.Sprintf("machine %s is up after %.1f s", m.Name, res.Took.Round(100*time.Millisecond).Seconds())
}
