// Command forkd-kube has the parts of forkd for clusters. It parses flags and wires; internal/kube has the parts. It is
// a program of its own, so that forkd links no library for clusters. The trap: it runs no VM and needs no rights.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
)

// The linker sets version.
var version = "dev"

func main() { exit.Main(run) }

// run is the whole program. It returns the exit code: 0 done, 1 failure, 2 wrong command line.
func run(ctx context.Context, args []string) int {
	began := false
	_, err := exit.Execute(ctx, newRoot(&began), args, &began)
	if err == nil {
		return 0
	}
	if code := exit.Code(0); errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "forkd-kube:", err)
	if usage := new(exit.UsageError); errors.As(err, usage) {
		return 2
	}
	return 1
}

func newRoot(began *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "forkd-kube",
		Short: "Serve many nodes of forkd as one",
		Long: "forkd-kube has the parts of forkd for clusters.\n\n" +
			"Exit codes: 0 done, 1 failure, 2 wrong command line.",
		Version:           version,
		PersistentPreRunE: func(*cobra.Command, []string) error { *began = true; return nil },
	}
	// The flags' table fits a terminal of 100 columns.
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 "))
	root.AddCommand(newGatewayCommand(), newOperatorCommand(), newInitCommand(), newDevicePluginCommand())
	return root
}
