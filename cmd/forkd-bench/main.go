// Command forkd-bench measures an installation of forkd beside the floor of its host, and one build
// of forkd beside another. It parses flags and prints; the packages below measure, as users of the
// daemon's API. The trap: commands that need the host of the VMs (floor, compare) may have to run
// in the machine, which carries this program for them.
package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// The linker sets version.
var version = "dev"

func main() { exit.Main(run) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string) int {
	a := &app{Printer: ui.Standard("forkd-bench")}
	cmd, err := exit.Execute(ctx, newRoot(a), args, &a.began)
	if err == nil {
		err = a.Lost()
	}
	if err == nil {
		return 0
	}
	return a.report(cmd, err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "forkd-bench",
		Short: "Measure what an installation of forkd reaches",
		Long: "forkd-bench measures forks, branches, chains of snapshots and disks, beside the floor that the host sets.\n" +
			"It is a user of the daemon's API; the daemon is found, or started, as by forkd.\n\n" +
			"Compare figures of one run only: on emulated or shared CPUs the floor itself moves tenfold within minutes.\n" +
			"`forkd-bench compare` puts one build of forkd beside another, in turn.\n\n" + exitCodes,
		Version:           version,
		PersistentPreRunE: func(*cobra.Command, []string) error { a.began = true; return nil },
	}
	a.addFlags(root)
	root.AddCommand(newForkCommand(a), newBranchCommand(a), newChainCommand(a), newDiskCommand(a), newCompareCommand(a),
		newLifeCommand(a), newVolumeCommand(a), newPeersCommand(a), newRecipesCommand(a), newHubCommand(a), newNetCommand(a),
		newNetInsideCommand(a), newFloorCommand(a), newE2BCommand(a))
	return root
}
