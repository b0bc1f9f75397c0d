package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newImageRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME...",
		Short:             "Remove images from the daemon's store; snapshots made of them stay",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().images(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			for _, name := range args {
				if err := c.RemoveImage(ctx, name); err != nil {
					return err
				}
				if !a.JSON {
					if err := a.Line("%s", name); err != nil {
						return err
					}
				}
			}
			if a.JSON {
				return a.Value(map[string][]string{"removed": args})
			}
			return nil
		}),
	}
}
