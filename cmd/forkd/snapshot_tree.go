package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/lineage"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// treeSandboxes is the number of sandboxes of one snapshot drawn without --all.
const treeSandboxes = 10

func newSnapshotTreeCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "tree [TAG]",
		Short: "Draw the tree of snapshots and sandboxes",
		Long: "Draw the tree of snapshots and sandboxes: all, or the descendants of TAG. Below a snapshot are the\n" +
			"sandboxes forked from it, and the snapshots branched from them.",
		Example:           "  forkd snapshot tree\n  forkd snapshot tree pyagent --all",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			roots, err := treeOf(ctx, c, args)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(roots)
			}
			most := treeSandboxes
			if all {
				most = math.MaxInt
			}
			return a.drawTree(lineage.Draw(roots, most))
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false,
		fmt.Sprintf("draw all sandboxes, not only %d of each snapshot", treeSandboxes))
	return cmd
}

func treeOf(ctx context.Context, c *client.Client, args []string) ([]*lineage.Node, error) {
	snapshots, err := c.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := c.ListSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	roots := lineage.Build(snapshots, sandboxes)
	if len(args) == 0 {
		return roots, nil
	}
	n := lineage.Find(roots, args[0])
	if n == nil {
		return nil, &client.Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("snapshot %s not found", args[0]),
			Reason: api.ReasonSnapshotNotFound,
		}
	}
	return []*lineage.Node{n}, nil
}

func (a *app) drawTree(lines []lineage.Line) error {
	var rows [][]string
	for _, l := range lines {
		row := treeRow(l)
		if !a.Quiet {
			row[0] = l.Branch + row[0]
		} else if l.More > 0 {
			continue // no name
		}
		rows = append(rows, row)
	}
	return a.Table([]string{"NAME", "STATUS", "SIZE", "PAUSE", "FROM", "NOTE"}, rows)
}

func treeRow(l lineage.Line) []string {
	switch {
	case l.Sandbox != nil:
		return []string{l.Sandbox.ID, string(l.Sandbox.Status), "", "", "", l.Sandbox.Reason}
	case l.More > 0:
		return []string{fmt.Sprintf("... and %d more", l.More), "", "", "", "", ""}
	case l.Node.Snapshot == nil:
		return []string{l.Node.Tag, "deleted", "", "", "", ""}
	}
	s := l.Node.Snapshot
	return []string{s.Tag, string(s.Status), ui.Bytes(s.SizeBytes), pauseOf(*s), text(s.BranchedFrom), noteOf(*s)}
}

// noteOf describes a problem of a snapshot, or why it need not be deleted by hand.
func noteOf(s api.SnapshotInfo) string {
	switch {
	case s.Warning != nil || !s.Transient:
		return text(s.Warning)
	case strings.HasPrefix(s.Tag, "pause-"):
		return "a sandbox's pause; goes with it"
	}
	return "a guest's fork; goes with its children"
}
