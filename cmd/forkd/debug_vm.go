package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd/internal/vmdebug"
	"github.com/forkd/forkd/cmd/internal/hints"
)

func newDebugVMCommand(a *app) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use:   "vm ID",
		Short: "Show threads, queues and exits of a sandbox's VM process",
		Long: "Show the state of a sandbox's VM process: its threads with the kernel function they wait in,\n" +
			"notifications the VMM has not taken, KVM's counters of exits, and the end of the VMM's log.\n\n" +
			"The command reads the daemon's run directory and /proc on this host, as the daemon's user or root.\n" +
			"It asks neither the daemon nor the VMM, so it works if they hang. KVM's counters need debugfs.",
		Example:           "  forkd debug vm sb-5f3a-0001\n  forkd debug vm sb-5f3a-0001 --run /run/forkd --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(_ *cobra.Command, args []string) error {
			vm, err := vmdebug.Host{Run: run, Proc: "/proc", KVM: "/sys/kernel/debug/kvm"}.Read(args[0])
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return hints.With(codedError{fmt.Errorf("debug VM: %w", err), api.CodeNotFound},
					"use --run if the daemon has another run directory; a daemon in the machine has its own host: `forkd machine shell`")
			case err != nil:
				return fmt.Errorf("debug VM: %w", err)
			case a.JSON:
				return a.Value(vm)
			}
			return a.Line("%s", strings.TrimSuffix(vm.Format(), "\n"))
		},
	}
	cmd.Flags().StringVar(&run, "run", "/run/forkd", "read the daemon's run directory `DIR`")
	return cmd
}
