package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newSnapshotPublishCommand(a *app) *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "publish TAG",
		Short: "Allow all tenants to fork a snapshot",
		Long: "Allow all tenants to see and fork a snapshot. Their sandboxes share its layers, and stay when it\n" +
			"is unpublished. A snapshot that was taken with volumes contains their content, and so do its\n" +
			"sandboxes. If the tag is given to another snapshot, that snapshot is not public.",
		Example:           "  forkd snapshot publish python\n  forkd snapshot publish --undo python",
		ValidArgsFunction: a.complete().tags(),
		Args:              cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := c.PublishSnapshot(ctx, args[0], !undo)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(info)
			}
			if undo {
				a.Note("snapshot %s is not public any more", info.Tag)
			} else {
				a.Note("all tenants may fork from snapshot %s", info.Tag)
				noteContained(a, info.Tag, info.Volumes)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "unpublish the snapshot")
	return cmd
}
