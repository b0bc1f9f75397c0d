//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/internal/appliance"
)

func newMachineStopCommand(name *machineName) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Power the machine off; its data disk stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.open()
			if err != nil {
				return err
			}
			switch err := m.Stop(cmd.Context()); {
			case errors.Is(err, appliance.ErrNotRunning):
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s does not run\n", m.Name)
			case err != nil:
				return err
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "machine %s is stopped\n", m.Name)
			}
			return nil
		},
	}
}

func newMachineRmCommand(name *machineName) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm",
		Short: "Stop the machine and delete it with its data disk",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := name.open()
			if err != nil {
				return err
			}
			if !m.Exists() {
				return fmt.Errorf("no machine %s", m.Name)
			}
			if !yes {
				return fmt.Errorf("this deletes %s with all images and snapshots in it; say --yes if you mean it", m.Dir)
			}
			return m.Remove(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "delete without asking")
	return cmd
}
