package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotDiffCommand(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare files, processes and packages of two snapshots",
		Long: "Compare two snapshots: files of the root file system (+ added, - removed, ~ changed), processes\n" +
			"and their memory, and packages. The command restores a child of each, lists its content, and ends\n" +
			"it.",
		Example:           "  forkd snapshot diff pyagent with-jq",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().tags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10000 {
				return exit.UsageError{Err: fmt.Errorf("--limit is %d, want 1 to 10000", limit)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				busy := a.Busy("diff", fmt.Sprintf("restoring %s and %s, and comparing them", args[0], args[1]))
				d, err := c.DiffSnapshots(ctx, args[0], args[1], limit)
				busy.End()
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Value(d)
				}
				return a.printDiff(d)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "show up to `N` entries of each kind")
	return cmd
}

func (a *app) printDiff(d api.SnapshotDiff) error {
	for _, part := range []struct {
		name   string
		counts api.DiffCounts
		lines  []string
	}{{"files", d.Files.DiffCounts, fileLines(d.Files)}, {"processes", d.Processes.DiffCounts, processLines(d.Processes)},
		{"packages", d.Packages.DiffCounts, packageLines(d.Packages)}} {
		n := part.counts
		if err := a.Line("%s: %d added, %d removed, %d changed", part.name, n.Added, n.Removed, n.Changed); err != nil {
			return err
		}
		for _, line := range part.lines {
			if err := a.Line("  %s", ui.Clean(line)); err != nil {
				return err
			}
		}
		if left := n.Added + n.Removed + n.Changed - len(part.lines); left > 0 {
			a.Note("%d more of the %s are not shown: --limit", left, part.name)
		}
		if !n.Complete {
			a.Note("not all %s could be looked at", part.name)
		}
	}
	return nil
}

func fileLines(d api.FileDiff) (lines []string) {
	one := func(mark string, f api.FileEntry) string {
		line := fmt.Sprintf("%s %s %s (%s", mark, f.Mode, f.Path, ui.Bytes(f.SizeBytes))
		if f.Target != "" {
			line += ", to " + f.Target
		}
		return line
	}
	for _, f := range d.Added {
		lines = append(lines, one("+", f)+")")
	}
	for _, f := range d.Removed {
		lines = append(lines, one("-", f)+")")
	}
	for _, f := range d.Changed {
		line := one("~", f.FileEntry)
		if f.SizeBytes != f.SizeBytesBefore {
			line += ", was " + ui.Bytes(f.SizeBytesBefore)
		}
		lines = append(lines, line+"; "+strings.Join(f.What, ", ")+")")
	}
	return lines
}

// longestCommand is the number of characters of a command line in a list. Interpreters with a program
// in their arguments have lines of many screens; --json has all of them.
const longestCommand = 80

// shortArgs returns the arguments of a process in one short line.
func shortArgs(args []string) string {
	line := []rune(strings.Join(args, " "))
	if len(line) > longestCommand {
		line = append(line[:longestCommand-1:longestCommand-1], '…')
	}
	return string(line)
}

func processLines(d api.ProcessDiff) (lines []string) {
	one := func(mark string, p api.ProcessEntry) string {
		return fmt.Sprintf("%s %d %s (%s of its own, %s in all",
			mark, p.PID, shortArgs(p.Args), ui.Bytes(p.AnonKiB<<10), ui.Bytes(p.RSSKiB<<10))
	}
	for _, p := range d.Started {
		lines = append(lines, one("+", p)+")")
	}
	for _, p := range d.Ended {
		lines = append(lines, one("-", p)+")")
	}
	for _, p := range d.Changed {
		lines = append(lines, fmt.Sprintf("%s, were %s and %s)",
			one("~", p.ProcessEntry), ui.Bytes(p.AnonKiBBefore<<10), ui.Bytes(p.RSSKiBBefore<<10)))
	}
	return lines
}

func packageLines(d api.PackageDiff) (lines []string) {
	for _, p := range d.Added {
		lines = append(lines, fmt.Sprintf("+ %s:%s %s", p.Name, p.Architecture, p.Version))
	}
	for _, p := range d.Removed {
		lines = append(lines, fmt.Sprintf("- %s:%s %s", p.Name, p.Architecture, p.Version))
	}
	for _, p := range d.Changed {
		lines = append(lines, fmt.Sprintf("~ %s:%s %s, was %s", p.Name, p.Architecture, p.Version, p.VersionBefore))
	}
	return lines
}
