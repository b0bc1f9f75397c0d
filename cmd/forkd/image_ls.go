package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newImageLsCommand(a *app) *cobra.Command {
	var filters []string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images in the daemon's store",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.ListImages(ctx, filters...)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			var rows [][]string
			for _, i := range list {
				rows = append(rows, []string{
					i.Name, i.Digest[:min(len(i.Digest), len("sha256:")+12)], ui.Bytes(i.SizeBytes), i.KernelVersion,
					ui.Age(time.Unix(i.CreatedAtUnix, 0), time.Now()), describe(i),
				})
			}
			return a.Table([]string{"NAME", "DIGEST", "SIZE", "KERNEL", "AGE", "DESCRIPTION"}, rows)
		}),
	}
	addFilterFlag(cmd.Flags(), &filters, "name, since, before")
	return cmd
}

// describe returns an image's description, or its source.
func describe(i api.Image) string {
	if c := i.Container; c != nil && i.Description == "" {
		return c.Reference + "@" + c.Digest[:min(len(c.Digest), len("sha256:")+12)]
	}
	return i.Description
}
