package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newImageRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Remove images from the daemon's store; their snapshots stay",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().images(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			errs := make([]error, len(args))
			for i, name := range args {
				errs[i] = c.RemoveImage(ctx, name)
			}
			return a.ended("removed", args, errs)
		}),
	}
}
