//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/appliance"
)

func newMachineStopCommand(name *machineName) *cobra.Command {
	end := &machineEnd{app: name.app}
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Power the machine off; its data disk stays",
		Long: "Power the machine off; its data disk stays. Sandboxes that run in it are counted, and you are asked what\n" +
			"becomes of them: paused ones go on after the next start with `forkd resume`. Without a terminal say --pause or --yes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.existing()
			if err != nil {
				return err
			}
			if err := end.settle(cmd.Context(), cmd, m); err != nil {
				return err
			}
			switch err := m.Stop(cmd.Context()); {
			case errors.Is(err, appliance.ErrNotRunning):
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s does not run\n", m.Name)
			case err != nil:
				return err
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s is stopped\n", m.Name)
				end.tellPaused(m)
			}
			return nil
		},
	}
	end.addFlags(cmd, false, "")
	return cmd
}

func newMachineRmCommand(name *machineName) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm",
		Short: "Stop the machine and delete it with its data disk",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.existing()
			if err != nil {
				return err
			}
			if !yes {
				return hints.With(codedError{fmt.Errorf("this deletes %s with all images, snapshots and sandboxes in it", m.Dir),
					api.CodeInvalid}, "say --yes if you mean it")
			}
			return m.Remove(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	return cmd
}
