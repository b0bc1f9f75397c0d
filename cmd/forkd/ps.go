package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newPsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ps",
		Aliases: []string{"ls"},
		Short:   "List the sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.ListSandboxes(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"ID", "SNAPSHOT", "INDEX", "STATUS", "AGE", "PID", "REASON"}, sandboxRows(list))
		},
	}
}

func sandboxRows(list []api.SandboxInfo) [][]string {
	var rows [][]string
	for _, sb := range list {
		pid := ""
		if sb.PID != nil {
			pid = fmt.Sprint(*sb.PID)
		}
		age := ui.Age(time.Unix(sb.CreatedAtUnix, 0), time.Now())
		rows = append(rows, []string{sb.ID, sb.SnapshotTag, fmt.Sprint(sb.Index), string(sb.Status), age, pid, sb.Reason})
	}
	return rows
}
