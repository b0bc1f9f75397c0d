//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/internal/vm/guestdump"
)

func newDebugCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Inspect a guest or its VM process from outside"}
	cmd.AddCommand(newDebugGuestCommand(a), newDebugVMCommand(a))
	return cmd
}

func newDebugGuestCommand(a *app) *cobra.Command {
	var data, symbols string
	cmd := &cobra.Command{
		Use:   "guest TAG",
		Short: "Show registers, stack, clocks and lock waits of a snapshot's guest",
		Long: "Show registers, stack and clocks of each vCPU of a snapshot. The command reads the snapshot's\n" +
			"state and memory from the data directory of a daemon on this host. To look at a hanging sandbox,\n" +
			"branch it first.\n\n" +
			"With --symbols, addresses are shown with the names of the guest kernel's functions. Copy\n" +
			"/proc/kallsyms from any sandbox of the same boot.",
		Example: "  forkd branch sb-5f3a-0001 --tag hung --mode full\n" +
			"  forkd exec sb-5f3a-0002 --user root -- cat /proc/kallsyms > kallsyms\n" +
			"  forkd debug guest hung --symbols kallsyms",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := guestdump.Open(data, args[0])
			if err != nil {
				return err
			}
			var names guestdump.Symbols
			if symbols != "" {
				f, err := os.Open(symbols)
				if err != nil {
					return err
				}
				defer f.Close()
				if names, err = guestdump.ReadSymbols(f); err != nil {
					return fmt.Errorf("%s: %w", symbols, err)
				}
			}
			if a.JSON {
				return a.Value(d)
			}
			return a.Line("%s", strings.TrimSuffix(d.Format(names), "\n"))
		},
	}
	cmd.Flags().StringVar(&data, "data", "/var/lib/forkd", "read the data directory `DIR` of the daemon")
	cmd.Flags().StringVar(&symbols, "symbols", "",
		"read kernel symbols from `FILE`, a copy of /proc/kallsyms of the same boot")
	return cmd
}
