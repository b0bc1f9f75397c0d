//go:build linux

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/machine/appliance"
)

func newMachineShellCommand(name *machineName) *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Open a shell in the machine itself, as root",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := name.agent()
			if err != nil {
				return err
			}
			defer client.Close()
			code, err := appliance.Shell(cmd.Context(), client, os.Stdin, os.Stdout)
			if err == nil && code != 0 {
				return exit.Code(code)
			}
			return err
		},
	}
}
