package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newRollbackCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback ID TAG",
		Short: "Return a running sandbox to a snapshot of its ancestry",
		Long: "Return a running sandbox to a snapshot it was forked from, or to one branched from it. It keeps\n" +
			"its ID, addresses and identity. It gets a new clock and new randomness. Its current processes end.\n" +
			"If the rollback fails, the sandbox keeps running.",
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
