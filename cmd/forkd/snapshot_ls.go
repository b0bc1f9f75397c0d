package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotLsCommand(a *app) *cobra.Command {
	var filters []string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the snapshots",
		Example: "  forkd snapshot ls --filter label=job=7 --filter image=python-numpy",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.ListSnapshots(ctx, filters...)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"TAG", "IMAGE", "MEMORY", "VCPUS", "SIZE", "STATUS", "AGE", "KEPT", "VERIFIED", "WARNING"},
				snapshotRows(list))
		}),
	}
	addFilterFlag(cmd.Flags(), &filters, "label, status, name, image, parent, sandbox, agent, since, before")
	return cmd
}

// verified describes when a snapshot's layers were last verified.
func verified(s api.SnapshotInfo) string {
	switch {
	case len(s.Damaged) > 0:
		return "damaged"
	case s.VerifiedAtUnix == nil:
		return "-"
	}
	return ui.Age(time.Unix(*s.VerifiedAtUnix, 0), time.Now()) + " ago"
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
			snapshotStatus(s), ui.Age(time.Unix(s.CreatedAtUnix, 0), time.Now()), kept(s, time.Now()), verified(s),
			warning,
		})
	}
	return rows
}

// snapshotStatus returns the status, or how much of the snapshot has arrived.
func snapshotStatus(s api.SnapshotInfo) string {
	if s.FetchBytes == 0 || s.Status != api.SnapshotReady {
		return string(s.Status)
	}
	return fmt.Sprintf("partial, %d %%", 100*s.FetchedBytes/s.FetchBytes)
}
