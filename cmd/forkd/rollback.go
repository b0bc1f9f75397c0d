package main

import (
	"github.com/spf13/cobra"
)

func newRollbackCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback ID TAG",
		Short: "Put a running sandbox back to a snapshot of its own line",
		Long: "Put a running sandbox back to a snapshot that it came from, or that was branched from\n" +
			"it. It keeps its id, its addresses and its identity; clock and randomness are new. What\n" +
			"runs in it ends. If that fails, it runs on as it was.",
		Example:           "  forkd branch sb-5f3a-0001 --tag before\n  forkd rollback sb-5f3a-0001 before",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeIDThenTag(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			info, err := c.Rollback(cmd.Context(), args[0], args[1])
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(info)
			}
			return a.Line("%s", info.ID)
		},
	}
}
