package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// buildAge is the default age of removed build snapshots. A younger one may belong to a build in
// progress.
const buildAge = time.Hour

// pruned is the result of system prune. Its JSON form is part of the CLI's contract.
type pruned struct {
	DryRun    bool     `json:"dry_run"`
	Snapshots []string `json:"snapshots"` // removed build snapshots
	// Due are the snapshots that the rules of their labels end, also those that stay for a reason.
	Due       []api.DueSnapshot `json:"due"`
	Layers    []string          `json:"layers"`
	Temporary int               `json:"temporary"` // leftovers of interrupted writes
	Bytes     int64             `json:"bytes"`
	unused    int64             // part of Bytes in unused layers, before the removal
}

// pruneOptions are the flags of system prune.
type pruneOptions struct {
	dryRun, yes bool
	age         time.Duration
}

func newSystemPruneCommand(a *app) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove expired snapshots, old Dockerfile steps and unused layers",
		Long: "Remove snapshots that have expired, or are older than the last ones to keep. Pinned and published\n" +
			"snapshots and snapshots in use stay. Remove layers without a snapshot or sandbox, leftovers of\n" +
			"interrupted writes, and unused snapshots of Dockerfile steps. The next build of such a Dockerfile\n" +
			"runs the steps again. Other snapshots and images stay. The command asks first, unless --yes is set.",
		Example: "  forkd system prune --dry-run\n  forkd system prune --yes --older-than 24h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.age < 0 {
				return exit.UsageError{Err: fmt.Errorf("--older-than is %s, want at least 0", o.age)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return pruning{a}.run(ctx, c, o)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "print unused objects without removing them")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.DurationVar(&o.age, "older-than", buildAge, "keep snapshots of Dockerfile steps younger than `DURATION`")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	return cmd
}

// pruning is one run of the command.
type pruning struct{ app *app }

func (a pruning) run(ctx context.Context, c *client.Client, o pruneOptions) error {
	s, err := takeStock(ctx, c)
	if err != nil {
		return err
	}
	layers, err := collectLayers(ctx, c, true)
	if err != nil {
		return err
	}
	due, err := client.PruneSnapshots(ctx, c, true)
	if err != nil {
		return err
	}
	builds := slices.DeleteFunc(s.unused(o.age, time.Now()), func(b api.SnapshotInfo) bool {
		return slices.ContainsFunc(due.Snapshots, func(d api.DueSnapshot) bool { return d.Tag == b.Tag })
	})
	out := pruned{DryRun: o.dryRun, Snapshots: []string{}, Due: due.Snapshots, Layers: layers.Layers,
		Temporary: layers.Temporary, Bytes: layers.Bytes + totalSize(builds) + due.Bytes, unused: layers.Bytes}
	found := len(builds)+len(layers.Layers)+layers.Temporary+out.going() > 0
	if found && !o.dryRun && !o.yes {
		question := fmt.Sprintf("remove %s? [y/N] ", prunedText(len(builds), out))
		if agreed, err := a.agree(ctx, os.Stdin, question); err != nil || !agreed {
			return err
		}
	}
	if !o.dryRun && found {
		err = a.removeUnused(ctx, c, builds, &out)
	} else {
		for _, info := range builds {
			out.Snapshots = append(out.Snapshots, info.Tag)
		}
	}
	return errors.Join(a.print(out), err)
}

// collectLayers removes unused layers. They are the operator's; a tenant's key prunes its snapshots only.
func collectLayers(ctx context.Context, c *client.Client, dryRun bool) (api.CollectResult, error) {
	r, err := c.CollectLayers(ctx, dryRun)
	if client.CodeOf(err) == api.CodeForbidden {
		return api.CollectResult{Layers: []string{}}, nil
	}
	return r, err
}

// removeUnused removes the snapshots, then the layers. It reports the removed ones even if an error
// ends it.
func (a pruning) removeUnused(ctx context.Context, c *client.Client, builds []api.SnapshotInfo, out *pruned) error {
	// Unused layers count as before: those of the snapshots removed now are in the snapshots' bytes.
	out.Layers, out.Temporary, out.Bytes = []string{}, 0, out.unused
	due, err := client.PruneSnapshots(ctx, c, false)
	if err != nil {
		out.Due = []api.DueSnapshot{}
		return err
	}
	out.Due, out.Bytes = due.Snapshots, out.Bytes+due.Bytes
	for _, info := range builds {
		err := c.DeleteSnapshot(ctx, info.Tag, client.DeleteOptions{})
		switch {
		case client.CodeOf(err) == api.CodeConflict:
			a.app.Note("snapshot %s is in use by now and stays", info.Tag)
		case client.IsNotFound(err): // another client removed it
		case err != nil:
			return err
		default:
			out.Snapshots = append(out.Snapshots, info.Tag)
			out.Bytes += info.SizeBytes
		}
	}
	layers, err := collectLayers(ctx, c, false)
	if err != nil {
		return err
	}
	out.Layers, out.Temporary = layers.Layers, layers.Temporary
	return nil
}

// agree asks on standard error. Without a terminal there is no answer, which is an error.
func (a pruning) agree(ctx context.Context, in *os.File, question string) (bool, error) {
	if !ui.Terminal(in) {
		return false, exit.UsageError{Err: errors.New("standard input is no terminal to ask on: give --yes or --dry-run")}
	}
	if _, err := io.WriteString(a.app.Err, question); err != nil {
		return false, err
	}
	answers := make(chan string, 1)
	go func() { // ends with the process if no answer comes
		line, _ := bufio.NewReader(in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	}
}

// going returns the number of due snapshots that nothing holds.
func (r pruned) going() (n int) {
	for _, d := range r.Due {
		if d.Held == "" {
			n++
		}
	}
	return n
}

func prunedText(builds int, r pruned) string {
	due := ""
	if n := r.going(); n > 0 {
		due = fmt.Sprintf("%d due snapshots, ", n)
	}
	return fmt.Sprintf("%s%d build snapshots, %d layers and %d leftovers, %s", due, builds, len(r.Layers), r.Temporary,
		ui.Bytes(r.Bytes))
}

func (a pruning) print(r pruned) error {
	if a.app.JSON {
		return a.app.Value(r)
	}
	if len(r.Due) > 0 {
		var rows [][]string
		for _, d := range r.Due {
			rows = append(rows, []string{d.Tag, cmp.Or(d.Owner, "-"), d.Why, cmp.Or(d.Held, "-"), ui.Bytes(d.Bytes)})
		}
		if err := a.app.Table([]string{"TAG", "OWNER", "REASON", "HELD", "FREES"}, rows); err != nil {
			return err
		}
	}
	for _, name := range append(r.Snapshots, r.Layers...) {
		if err := a.app.Line("%s", ui.Clean(name)); err != nil {
			return err
		}
	}
	did := "removed"
	if r.DryRun {
		did = "would be removed"
	}
	a.app.Note("%s: %s", did, prunedText(len(r.Snapshots), r))
	return nil
}
