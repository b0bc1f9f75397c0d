package exit

import (
	"context"

	"github.com/spf13/cobra"
)

// Execute runs a program's command line and returns the named command. An error before that
// command's own work has begun is a UsageError. The command sets began.
func Execute(ctx context.Context, root *cobra.Command, args []string, began *bool) (*cobra.Command, error) {
	root.SilenceUsage, root.SilenceErrors = true, true // the program prints errors, in one place
	root.SetVersionTemplate(root.Name() + " {{.Version}}\n")
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !*began {
		err = UsageError{Err: err}
	}
	return cmd, err
}
