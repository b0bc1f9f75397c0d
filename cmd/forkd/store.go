package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newStoreCommand(a *app) *cobra.Command {
	return group("store", "Look after the store of snapshots", newStoreGCCommand(a))
}

func newStoreGCCommand(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove the layers of memory and disks that nothing needs any more",
		Long: "Remove the layers of memory and disks that no snapshot and no sandbox needs any more, and what interrupted writes left. The\n" +
			"daemon does so by itself, at its start and when something is deleted.",
		Args: cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			r, err := c.CollectLayers(ctx, dryRun)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(r)
			}
			for _, id := range r.Layers {
				if err := a.Line("%s", ui.Clean(id)); err != nil {
					return err
				}
			}
			did := "removed"
			if r.DryRun {
				did = "would be removed"
			}
			a.Note("%d layers and %d leftovers %s, %s", len(r.Layers), r.Temporary, did, ui.Bytes(r.Bytes))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing, only say what would be")
	return cmd
}
