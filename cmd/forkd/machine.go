//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/forkd/forkd/internal/appliance"
	"github.com/forkd/forkd/internal/appliance/guest"
)

func newMachineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "machine",
		Short: "Run the appliance for hosts without a usable KVM",
		Long: "The machine is a small Linux under QEMU with forkd inside. It is used where the\n" +
			"host's own KVM is missing or too slow; `forkd doctor` tells which it is.",
	}
	name := cmd.PersistentFlags().String("name", appliance.DefaultName, "name of the machine")
	cmd.AddCommand(newMachineStartCommand(name))
	cmd.AddCommand(newMachineStopCommand(name))
	cmd.AddCommand(newMachineStatusCommand(name))
	cmd.AddCommand(newMachineLogsCommand(name))
	cmd.AddCommand(newMachineRmCommand(name))
	cmd.AddCommand(newMachineShellCommand(name))
	cmd.AddCommand(newMachineExecCommand(name))
	cmd.AddCommand(newMachineTestExecCommand(name))
	return cmd
}

// newMachineInitCommand is what the appliance's kernel starts.
func newMachineInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "machine-init",
		Short:  "Be the first process of the appliance",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { guest.Run() },
	}
}
