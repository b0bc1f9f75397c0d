package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

func newRenameCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename TAG NEW",
		Short: "Give a snapshot another tag",
		Long: "Give a snapshot another tag. Sandboxes forked from it keep running and show the new tag. Its labels,\n" +
			"its pool and the snapshots built on it stay. It is refused while a fork or a branch uses\n" +
			"the snapshot, and if the new tag is taken. Sandboxes have IDs and no names: label them instead.",
		Example:           "  forkd rename pyagent pyagent-v1\n  forkd label sb-5f3a-0001 name=worker",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := client.RenameSnapshot(ctx, c, args[0], args[1])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(s)
			}
			return a.Line("%s", s.Tag)
		}),
	}
}
