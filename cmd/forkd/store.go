package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newStoreCommand(a *app) *cobra.Command {
	return group("store", "Maintain the store of snapshots", newStoreGCCommand(a))
}

func newStoreGCCommand(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove unused layers",
		Long: "Remove the layers without a snapshot or sandbox, and leftovers of interrupted writes. The daemon\n" +
			"also does this at its start and after deletions.",
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
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print unused layers without removing them")
	return cmd
}
