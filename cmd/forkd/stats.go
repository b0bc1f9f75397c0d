package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newStatsCommand(a *app) *cobra.Command {
	var noStream, all bool
	cmd := &cobra.Command{
		Use:   "stats [ID...]",
		Short: "Show the resource use of sandboxes, with totals",
		Long: "Show the resource use of the named sandboxes, or of all, every second. CPU is in percent of one\n" +
			"CPU. Memory is host memory. Network and disk are totals since the sandbox's VM was started;\n" +
			"`forkd top` shows rates, busiest first. With --json each sample is a document.",
		Example: "  forkd stats\n  forkd stats --no-stream sb-5f3a-0001\n" +
			"  forkd stats --no-stream --format '{{.id}} {{.memory_bytes}}'",
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				t := top{Printer: &a.Printer, daemon: c, every: time.Second, once: noStream, all: all}
				var err error
				if t.only, err = fullIDs(ctx, c, args); err != nil {
					return err
				}
				t.print = t.stats
				return t.run(ctx)
			})
		},
	}
	addNoTrunc(cmd, &all)
	cmd.Flags().BoolVar(&noStream, "no-stream", false, "print one sample and exit")
	return cmd
}

// fullIDs returns the IDs of sandboxes as lists have them. It returns an error for an unknown sandbox.
func fullIDs(ctx context.Context, c *client.Client, given []string) ([]string, error) {
	var out []string
	for _, id := range given {
		sb, err := c.Sandbox(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, sb.ID)
	}
	return out, nil
}

// named returns the sandboxes of a list that the command is about, all without names.
func (t top) named(list []api.SandboxInfo) []api.SandboxInfo {
	if len(t.only) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(sb api.SandboxInfo) bool { return !slices.Contains(t.only, sb.ID) })
}

// ended reports whether sandboxes were named and none of them can use resources any more. A paused one
// can: it may be resumed.
func (t top) ended(list []api.SandboxInfo) bool {
	alive := func(sb api.SandboxInfo) bool { return sb.Status != api.SandboxFailed }
	return len(t.only) > 0 && !slices.ContainsFunc(list, alive)
}

// stats prints the rows with totals, in the order of their IDs.
func (t top) stats(rows []topRow) error {
	slices.SortFunc(rows, func(a, b topRow) int { return cmp.Compare(a.ID, b.ID) })
	if t.JSON {
		return t.Value(rows)
	}
	rows, err := t.page(rows)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.ID, r.SnapshotTag, percent(r.CPUPercent), ui.Bytes(r.MemoryBytes),
			bytesLimit(r.MemoryLimitBytes), memoryPercent(r), ui.Bytes(r.NetIn), ui.Bytes(r.NetOut), ui.Bytes(r.DiskRead),
			ui.Bytes(r.DiskWritten), fmt.Sprint(r.Threads)})
	}
	head := []string{"ID", "SNAPSHOT", "CPU", "MEMORY", "LIMIT", "MEMORY %", "NET IN", "NET OUT", "READ", "WRITTEN",
		"THREADS"}
	if t.all {
		return t.Table(head, cells)
	}
	return t.FittedTable(head, cells, ui.Fit{Cut: []string{"SNAPSHOT"},
		Drop: []string{"THREADS", "MEMORY %", "LIMIT", "READ", "WRITTEN", "NET OUT", "NET IN"}})
}

// memoryPercent returns the share of the limit, or an empty text without a limit.
func memoryPercent(r topRow) string {
	if r.MemoryLimitBytes == 0 {
		return ""
	}
	return percent(100 * float64(r.MemoryBytes) / float64(r.MemoryLimitBytes))
}

// page clears the screen of a terminal for the next sample, and returns the rows that fit on it.
func (t top) page(rows []topRow) ([]topRow, error) {
	if t.once || !ui.Terminal(t.Out) {
		return rows, nil
	}
	_, err := io.WriteString(t.Out, "\x1b[H\x1b[2J") // move to the top left and clear the screen
	return rows[:min(len(rows), screenRows(t.Out))], err
}
