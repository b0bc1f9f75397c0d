package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotCopyCommand(a *app) *cobra.Command {
	var peers []string
	cmd := &cobra.Command{
		Use:   "copy TAG --from-peer URL",
		Short: "Copy a snapshot from another daemon",
		Long: "Let the daemon copy a snapshot from another daemon, without a registry. The peers are asked in the\n" +
			"given order, and an interrupted copy continues at the next one. The operator of the daemon allows\n" +
			"peers with `forkd serve --peer`.",
		Example: "  forkd snapshot copy pyagent --from-peer https://10.0.0.2:8889",
		Args:    cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.CopySnapshot(ctx, args[0], peers)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(s)
			}
			a.Note("snapshot %s, %s on disk", s.Tag, ui.Bytes(s.SizeBytes))
			return a.Line("%s", s.Tag)
		}),
	}
	cmd.Flags().StringArrayVar(&peers, "from-peer", nil, "copy from the daemon at `URL`; may be repeated")
	if err := cmd.MarkFlagRequired("from-peer"); err != nil {
		panic("no flag --from-peer: " + err.Error())
	}
	return cmd
}
