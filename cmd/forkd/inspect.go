package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/receipts"
)

func newInspectCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "inspect ID|TAG",
		Short: "Show how a sandbox or a snapshot came to be: its receipt",
		Long: "Show the receipt of a sandbox (its fork, or its last rollback) or of a snapshot: what it was\n" +
			"made from, what was captured and how, who the guest was told to be, its proof that it drew\n" +
			"new randomness, and how long each step took. Receipts stay when what they tell of is gone.",
		Example:           "  forkd inspect sb-5f3a-0001\n  forkd inspect pyagent --json\n  forkd inspect sb-5f3a-0001 --all",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDsAndTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := receiptsOf(cmd.Context(), c, args[0], all)
			switch {
			case err != nil:
				return err
			case a.JSON && all:
				return a.Value(list)
			case a.JSON:
				return a.Value(list[0])
			}
			for i, r := range list {
				if i > 0 {
					if err := a.Line(""); err != nil {
						return err
					}
				}
				if err := a.Facts(receipts.Facts(r)...); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all receipts that there are of it, newest first")
	return cmd
}

// receiptsOf finds the newest receipt of a sandbox, or else of a snapshot, or all.
func receiptsOf(ctx context.Context, c *client.Client, name string, all bool) ([]api.Receipt, error) {
	filter := client.ReceiptFilter{Sandbox: name, Limit: 1000}
	r, err := c.SandboxReceipt(ctx, name)
	if client.IsNotFound(err) {
		filter.Sandbox, filter.Snapshot = "", name
		r, err = c.SnapshotReceipt(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if all {
		return c.ListReceipts(ctx, filter)
	}
	return []api.Receipt{r}, nil
}
