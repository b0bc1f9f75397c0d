// Command forkd is the CLI and the daemon: one binary, one file per command. It parses flags and
// prints. The packages below do the work. The trap: a command must be added in newRoot to exist.
package main

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/platform"
)

// version is set by the linker.
var version = "dev"

func main() { exit.Main(run) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string) int {
	a := &app{Printer: ui.Standard("forkd"), line: args}
	root := newRoot(a)
	root.SetOut(a.Out) // help and version count as results
	cmd, err := exit.Execute(ctx, root, args, &a.began)
	if err == nil {
		err = a.Lost()
	}
	if err == nil {
		return 0
	}
	err = a.line.inOwnWords(cmd, sayInterrupted(cmd, err))
	a.report(cmd, err)
	return codeOf(cmd, err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "forkd",
		Short: "Fork warm microVMs",
		Long: "forkd boots a microVM once, warms it up, and forks hundreds of children from it in milliseconds.\n" +
			"Each child is a separate virtual machine.",
		Version: version,
	}
	root.CompletionOptions.DisableDefaultCmd = true // ours has a longer help
	a.addFlags(root)
	const sandboxes, parents, host = "sandboxes", "parents", "host"
	root.AddGroup(
		&cobra.Group{ID: sandboxes, Title: "Sandboxes:"},
		&cobra.Group{ID: parents, Title: "Images and snapshots:"},
		&cobra.Group{ID: host, Title: "Host and daemon:"},
	)
	add := func(id string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	add(sandboxes, newForkCommand(a), newBranchCommand(a), newRollbackCommand(a),
		newPromoteCommand(a), newMergeCommand(a), newKeepCommand(a),
		newPauseCommand(a), newResumeCommand(a), newExtendCommand(a), newRunCommand(a), newExecCommand(a),
		newEvalCommand(a), newCpCommand(a), newPortForwardCommand(a), newSSHCommand(a),
		newPsCommand(a), newTopCommand(a), newStatsCommand(a), newEventsCommand(a),
		newNetCommand(a), newInspectCommand(a), newServiceCommand(a),
		newLabelCommand(a), newRenameCommand(a), newWaitCommand(a), newKillCommand(a), newLogsCommand(a))
	add(parents, newImageCommand(a), newSnapshotCommand(a), newPoolCommand(a), newStoreCommand(a),
		newPushCommand(a), newPullCommand(a), newHubCommand(a))
	add(host, append(hostCommands(a), newContextCommand(a), newSystemCommand(a), newCapacityCommand(a), newDrainCommand(a),
		newAuditCommand(a), newKeyCommand(a), newSecretCommand(a), newVolumeCommand(a), newTenantCommand(a),
		newE2BCommand(a), newMCPCommand(a), newUICommand(a), newSupportCommand(a))...)
	root.AddCommand(newVersionCommand(a), newCompletionCommand(), newFlagsTopic(root.PersistentFlags()))
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return a.line.flagError(cmd, err) })
	if err := platform.Check(runtime.GOOS, runtime.GOARCH); err != nil {
		refuse(root, err)
	}
	polish(a, root)
	return root
}
