package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newRollbackCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback ID TAG",
		Short: "Put a running sandbox back to a snapshot of its own ancestry",
		Long: "Put a running sandbox back to a snapshot that it came from, or that was branched from\n" +
			"it. It keeps its id, its addresses and its identity; clock and randomness are new. What\n" +
			"runs in it ends. If that fails, it runs on as it was.",
		Example:           "  forkd branch sb-5f3a-0001 --tag before\n  forkd rollback sb-5f3a-0001 before",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().idThenTag(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := c.Rollback(ctx, args[0], args[1])
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(info)
			}
			return a.Line("%s", info.ID)
		}),
	}
}
