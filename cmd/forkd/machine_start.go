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
		Short: "Start the machine, or do nothing if it runs",
		Long: "Start the machine, or do nothing if it runs as it is asked for. One that runs with other values than\n" +
			"are given here is left as it is, which is an error: --restart renews it. Sandboxes that run in it are\n" +
			"paused for that, and resumed.",
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
	f.IntVar(&opt.Spec.CPUs, "cpus", 0, "virtual CPUs (default: the host's, up to 8)")
	f.IntVar(&opt.Spec.MemoryMiB, "memory", 0, "memory in MiB (default: half of the host's, up to 6144)")
	f.IntVar(&opt.Spec.DiskGiB, "disk", 0, "size of the sparse data disk in GiB (default 20; it only grows)")
	f.BoolVar(&opt.Restart, "restart", false, "restart a running machine whose programs or settings differ")
	f.DurationVar(&opt.Wait, "wait", appliance.DefaultStartWait, "how long the machine may take to answer")
	f.StringVar(&opt.Jail, "jail", "", "keep VM processes from the machine: off, best (as far as it can) or strict "+
		"(or its daemon does not serve) (default: as before, else "+string(defaultJail)+")")
	f.StringVar(&config, "serve-config", "",
		"file of this host with more flags of the machine's forkd serve, one a line; none: no more (default: as before)")
	f.StringVar(&opt.Kernel, "kernel", "", "series or package of the machine's own kernel, for this start only")
	_ = f.MarkHidden("kernel") // the flag exists, so it cannot fail
	network.addFlags(f)
	end.addFlags(cmd, true, ", with --restart")
	f.Lookup("pause").Usage = "with --restart: pause the sandboxes that run in it, and resume them afterwards"
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
		return fmt.Sprintf("machine %s runs, with older programs or other settings; `forkd machine start%s --restart` renews it",
			m.Name, hints.MachineFlag(m.Name))
	case res.Already:
		return fmt.Sprintf("machine %s runs already", m.Name)
	}
	return fmt.Sprintf("machine %s is up after %.1f s", m.Name, res.Took.Round(100*time.Millisecond).Seconds())
}
