package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newPsCommand(a *app) *cobra.Command {
	var all bool
	var filters []string
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"ls"},
		Short:   "List the sandboxes",
		Long: "List the sandboxes.\n\n" +
			"MEMORY is the private host memory of a sandbox: its dirty pages, its VMM's memory, and their page\n" +
			"tables. It is freed when the sandbox ends. USE/LIMIT is the host memory counted against the limit,\n" +
			"with page cache, and the limit if there is one. NET is the network policy: none, public, or custom\n" +
			"(see `forkd net policy ID`), and the bandwidth limit (see `forkd top` for its use).\n" +
			"NODE is there if a daemon has a node name, SERVICES if a sandbox has some.\n\n" +
			"On a narrow terminal long cells are cut and columns omitted, unless --no-trunc is given.",
		Example: "  forkd ps --filter label=job=7 --filter status=running\n  forkd ps -q --filter name=5f3a",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.ListSandboxes(ctx, filters...)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			head, rows := sandboxTable(list)
			if all {
				return a.Table(head, rows)
			}
			return a.FittedTable(head, rows, ui.Fit{
				Cut:  []string{"SNAPSHOT", "STATUS", "NET", "NODE", "SERVICES", "REASON"},
				Drop: []string{"PID", "INDEX", "USE/LIMIT", "END", "NET", "AGE", "NODE"},
			})
		}),
	}
	addNoTrunc(cmd, &all)
	addFilterFlag(cmd.Flags(), &filters, "label, status, name, snapshot, parent, node, since, before")
	return cmd
}

func addNoTrunc(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVar(all, "no-trunc", false, "show all columns in full, even on a narrow terminal")
}

// sandboxTable returns the columns of the list. NODE and SERVICES are there only if a sandbox has a value for them.
func sandboxTable(list []api.SandboxInfo) (head []string, rows [][]string) {
	head = []string{"ID", "SNAPSHOT", "INDEX", "STATUS", "NET", "AGE", "END", "PID", "MEMORY", "USE/LIMIT", "REASON"}
	rows = sandboxRows(list)
	for _, column := range []struct {
		name string
		of   func(api.SandboxInfo) string
	}{
		{"NODE", func(sb api.SandboxInfo) string { return sb.Node }},
		{"SERVICES", servicesOf},
	} {
		if !slices.ContainsFunc(list, func(sb api.SandboxInfo) bool { return column.of(sb) != "" }) {
			continue
		}
		head = slices.Insert(head, len(head)-1, column.name)
		for i, sb := range list {
			rows[i] = slices.Insert(rows[i], len(rows[i])-1, column.of(sb))
		}
	}
	return head, rows
}

func sandboxRows(list []api.SandboxInfo) [][]string {
	var rows [][]string
	for _, sb := range list {
		pid := ""
		if sb.PID != nil {
			pid = fmt.Sprint(*sb.PID)
		}
		memory := ""
		if sb.OwnMemoryKiB > 0 {
			memory = ui.Bytes(sb.OwnMemoryKiB << 10)
		}
		age := ui.Age(time.Unix(sb.CreatedAtUnix, 0), time.Now())
		rows = append(rows, []string{sb.ID, sb.SnapshotTag, fmt.Sprint(sb.Index), statusOf(sb), policyName(sb),
			age, endOf(sb), pid, memory, useOfLimit(sb), cmp.Or(sb.Reason, sb.Warning)})
	}
	return rows
}

// servicesOf returns the services that are ready, or each that is not.
func servicesOf(sb api.SandboxInfo) string {
	var rest []string
	for _, s := range sb.Services {
		if s.State != "ready" {
			text := s.Name + " " + s.State
			if s.Error != "" {
				text += " (" + s.Error + ")"
			}
			rest = append(rest, text)
		}
	}
	switch {
	case len(sb.Services) == 0:
		return ""
	case len(rest) > 0:
		return strings.Join(rest, ", ")
	}
	return fmt.Sprintf("%d ready", len(sb.Services))
}

// statusOf returns the status. It marks paused sandboxes without memory as cold.
func statusOf(sb api.SandboxInfo) string {
	if sb.Cold && sb.Status == api.SandboxPaused {
		return "paused (cold)"
	}
	return string(sb.Status)
}

// useOfLimit is empty for an ended sandbox.
func useOfLimit(sb api.SandboxInfo) string {
	if sb.Use == nil {
		return ""
	}
	use := ui.Bytes(sb.Use.MemoryBytes)
	if sb.MemoryLimitMiB != nil {
		use += "/" + ui.Bytes(int64(*sb.MemoryLimitMiB)<<20)
	}
	return use
}

// policyName is empty for an ended sandbox.
func policyName(sb api.SandboxInfo) string {
	if sb.Network == nil {
		return ""
	}
	if sb.Use != nil && sb.Use.NetLimitBytes > 0 {
		return fmt.Sprintf("%s %s/s", sb.Network.Policy, ui.Bytes(sb.Use.NetLimitBytes))
	}
	return string(sb.Network.Policy)
}
