// Command forkd is the CLI and the daemon: one binary, one file per command.
// It parses flags and prints; the work is in the packages below. The trap: a
// command that is not added in newRoot does not exist.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/platform"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// endings are the signals to end by, tidily: what was made for the time being is
// taken down. A terminal that is closed is one, unless we were told (nohup) to go on.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// run is the whole program; the result is the exit code.
func run(ctx context.Context, args []string) int {
	a := &app{Printer: ui.Printer{Program: "forkd", Out: os.Stdout, Err: os.Stderr}}
	a.args = args
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if !a.began {
		err = usageError{err}
	}
	err = a.inOwnWords(cmd, sayInterrupted(cmd, err))
	a.report(cmd, err)
	return codeOf(cmd, err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "forkd",
		Short: "Fork warm microVMs",
		Long: "forkd boots a microVM once, warms it up, and forks hundreds of children from it in\n" +
			"milliseconds. Each child is a virtual machine of its own.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("forkd {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true // ours says more
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
	add(sandboxes, newForkCommand(a), newBranchCommand(a), newRollbackCommand(a), newRunCommand(a), newExecCommand(a),
		newEvalCommand(a), newCpCommand(a),
		newPsCommand(a), newInspectCommand(a), newKillCommand(a), newLogsCommand(a))
	add(parents, newImageCommand(a), newSnapshotCommand(a), newPoolCommand(a), newStoreCommand(a))
	add(host, hostCommands(a)...)
	root.AddCommand(newVersionCommand(a), newCompletionCommand())
	root.SetFlagErrorFunc(a.flagError)
	if err := platform.Check(runtime.GOOS, runtime.GOARCH); err != nil {
		refuse(root, err)
	}
	polish(a, root)
	return root
}
