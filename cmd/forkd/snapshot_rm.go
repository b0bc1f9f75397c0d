package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newSnapshotRmCommand(a *app) *cobra.Command {
	var opt client.DeleteOptions
	cmd := &cobra.Command{
		Use:               "rm TAG...",
		Short:             "Delete snapshots",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			errs := make([]error, len(args))
			for i, tag := range args {
				errs[i] = c.DeleteSnapshot(ctx, tag, opt)
			}
			return a.ended("deleted", args, errs)
		}),
	}
	cmd.Flags().BoolVar(&opt.Cascade, "cascade", false, "also delete the snapshots built on them")
	cmd.Flags().BoolVarP(&opt.Force, "force", "f", false,
		"delete snapshots even if sandboxes or other snapshots use them")
	cmd.MarkFlagsMutuallyExclusive("cascade", "force")
	return cmd
}
