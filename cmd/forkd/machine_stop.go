//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/machine/appliance"
)

func newMachineStopCommand(name *machineName) *cobra.Command {
	end := &machineEnd{app: name.app}
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Power the machine off; its data disk stays",
		Long: "Power the machine off; its data disk stays. If sandboxes run in it, the command asks whether to\n" +
			"pause or end them. After the next start, `forkd resume` continues paused sandboxes. Without a\n" +
			"terminal give --pause or --yes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.existing()
			if err != nil {
				return err
			}
			if err := end.settle(cmd.Context(), cmd, m); err != nil {
				return err
			}
			err = m.Stop(cmd.Context())
			ran := !errors.Is(err, appliance.ErrNotRunning)
			switch {
			case err != nil && ran:
				return err
			case name.app.JSON:
				return name.app.Value(stopReport{m.Name, ran, append([]string{}, end.paused...)})
			case ran:
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s is stopped\n", m.Name)
				end.tellPaused(m)
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s does not run\n", m.Name)
			}
			return nil
		},
	}
	end.addFlags(cmd, false, "")
	return cmd
}

// stopReport is the result of machine stop --json.
type stopReport struct {
	Name   string   `json:"name"`
	Ran    bool     `json:"ran"`    // it was running
	Paused []string `json:"paused"` // sandboxes
}

func newMachineRmCommand(name *machineName) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm",
		Short: "Stop the machine and delete its data disk",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.existing()
			if err != nil {
				return err
			}
			if !yes {
				return hints.With(codedError{fmt.Errorf("this deletes %s with all images, snapshots and sandboxes in it", m.Dir),
					api.CodeInvalid}, "use --yes to confirm")
			}
			if err := m.Remove(cmd.Context()); err != nil || !name.app.JSON {
				return err
			}
			return name.app.Names("removed", []string{m.Name})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	return cmd
}
