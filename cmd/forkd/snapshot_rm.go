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
		Short:             "Delete snapshots; all that are named are tried",
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
	cmd.Flags().BoolVar(&opt.Cascade, "cascade", false, "delete the snapshots built on them too")
	cmd.Flags().BoolVarP(&opt.Force, "force", "f", false, "delete them although others, or running sandboxes, use them")
	cmd.MarkFlagsMutuallyExclusive("cascade", "force")
	return cmd
}
