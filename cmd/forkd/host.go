//go:build linux

package main

import "github.com/spf13/cobra"

// hostCommands are the commands for VMs on this host, and for their daemon.
func hostCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newServeCommand(a), newFetcherCommand(a), newDaemonCommand(a),
		newDoctorCommand(a), newMachineCommand(a), newMachineInitCommand(), newDemoCommand(a),
		newDebugCommand(a), newGenerateCommand(a), newIdentityCommand(a),
	}
}
