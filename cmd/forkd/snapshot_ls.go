package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newSnapshotLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the snapshots",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.ListSnapshots(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"TAG", "IMAGE", "MEMORY", "VCPUS", "SIZE", "STATUS", "AGE", "WARNING"}, snapshotRows(list))
		},
	}
}

func snapshotRows(list []api.SnapshotInfo) [][]string {
	var rows [][]string
	for _, s := range list {
		warning := ""
		if s.Warning != nil {
			warning = *s.Warning
		}
		rows = append(rows, []string{
			s.Tag, s.Image, fmt.Sprintf("%d MiB", s.MemoryMiB), fmt.Sprint(s.VCPUs), ui.Bytes(s.SizeBytes),
			string(s.Status), ui.Age(time.Unix(s.CreatedAtUnix, 0), time.Now()), warning,
		})
	}
	return rows
}
