package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotCompactCommand(a *app) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "compact TAG --to NEW",
		Short: "Copy a snapshot without dependencies on others",
		Long: "Make a new snapshot with the same content and its own base layers. It takes the space of all\n" +
			"layers together. The snapshots below the original can then be deleted. The original stays\n" +
			"unchanged.",
		Example:           "  forkd snapshot compact tried-it --to keep && forkd snapshot rm --cascade pyagent",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := a.compactSnapshot(ctx, c, args[0], to)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(s)
			}
			a.Note("%s: %s on disk, all its own, in %s", s.Tag, ui.Bytes(s.SizeBytes), ui.Millis(s.Timings["compact"]))
			return a.Line("%s", s.Tag)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "name the new snapshot `TAG`")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic("no flag --to: " + err.Error())
	}
	return cmd
}

// compactSnapshot shows the steps while they happen.
func (a *app) compactSnapshot(ctx context.Context, c *client.Client, tag, to string) (api.SnapshotInfo, error) {
	progress := a.Progress()
	defer progress.End()
	s, err := c.CompactSnapshot(ctx, tag, to, showStep(progress))
	return s, unlessMade(ctx, err, madeSnapshot(c, to))
}
