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
			for _, tag := range args {
				if err := c.DeleteSnapshot(ctx, tag, opt); err != nil {
					return err
				}
				if !a.JSON {
					if err := a.Line("%s", tag); err != nil {
						return err
					}
				}
			}
			if a.JSON {
				return a.Value(map[string][]string{"deleted": args})
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&opt.Cascade, "cascade", false, "delete the snapshots built on them too")
	cmd.Flags().BoolVarP(&opt.Force, "force", "f", false, "delete them although others, or running sandboxes, use them")
	cmd.MarkFlagsMutuallyExclusive("cascade", "force")
	return cmd
}
