package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// needVMs returns the commands for VMs on this host, and for building their images. All other
// commands use a daemon, which may be on another host.
func needVMs() []string {
	return []string{"serve", "doctor", "machine", "demo", "image build", "image pull", "image import"}
}

// refuse makes these commands and their subcommands return the reason why they cannot work.
func refuse(root *cobra.Command, why error) {
	for _, cmd := range root.Commands() {
		if name := strings.TrimPrefix(cmd.CommandPath(), "forkd "); slices.Contains(needVMs(), name) {
			cmd.RemoveCommand(cmd.Commands()...)
			cmd.Args, cmd.DisableFlagParsing = cobra.ArbitraryArgs, true
			cmd.RunE = func(*cobra.Command, []string) error { return why }
			continue
		}
		refuse(cmd, why)
	}
}
