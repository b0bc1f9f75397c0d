package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	Layers    []string `json:"layers"`
	Temporary int      `json:"temporary"` // leftovers of interrupted writes
	Bytes     int64    `json:"bytes"`
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
		Short: "Remove unused layers and the snapshots of old Dockerfile steps",
		Long: "Remove layers without a snapshot or sandbox, leftovers of interrupted writes, and unused snapshots\n" +
			"of Dockerfile steps. The next build of such a Dockerfile runs the steps again. Other snapshots and\n" +
			"images stay. The command asks first, unless --yes is given.",
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
type pruning struct{ *app }

func (a pruning) run(ctx context.Context, c *client.Client, o pruneOptions) error {
	s, err := takeStock(ctx, c)
	if err != nil {
		return err
	}
	layers, err := c.CollectLayers(ctx, true)
	if err != nil {
		return err
	}
	builds := s.unused(o.age, time.Now())
	out := pruned{DryRun: o.dryRun, Snapshots: []string{}, Layers: layers.Layers, Temporary: layers.Temporary,
		Bytes: layers.Bytes + totalSize(builds)}
	found := len(builds)+len(layers.Layers)+layers.Temporary > 0
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

// removeUnused removes the snapshots, then the layers. It reports the removed ones even if an error
// ends it.
func (a pruning) removeUnused(ctx context.Context, c *client.Client, builds []api.SnapshotInfo, out *pruned) error {
	out.Layers, out.Temporary, out.Bytes = []string{}, 0, 0
	for _, info := range builds {
		err := c.DeleteSnapshot(ctx, info.Tag, client.DeleteOptions{})
		switch {
		case client.CodeOf(err) == api.CodeConflict:
			a.Note("snapshot %s is in use by now and stays", info.Tag)
		case client.IsNotFound(err): // another client removed it
		case err != nil:
			return err
		default:
			out.Snapshots = append(out.Snapshots, info.Tag)
			out.Bytes += info.SizeBytes
		}
	}
	layers, err := c.CollectLayers(ctx, false)
	if err != nil {
		return err
	}
	out.Layers, out.Temporary = layers.Layers, layers.Temporary
	out.Bytes += layers.Bytes
	return nil
}

// agree asks on standard error. Without a terminal there is no answer, which is an error.
func (a pruning) agree(ctx context.Context, in *os.File, question string) (bool, error) {
	if !ui.Terminal(in) {
		return false, exit.UsageError{Err: errors.New("standard input is no terminal to ask on: give --yes or --dry-run")}
	}
	if _, err := io.WriteString(a.Err, question); err != nil {
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

func prunedText(builds int, r pruned) string {
	return fmt.Sprintf("%d build snapshots, %d layers and %d leftovers, %s", builds, len(r.Layers), r.Temporary,
		ui.Bytes(r.Bytes))
}

func (a pruning) print(r pruned) error {
	if a.JSON {
		return a.Value(r)
	}
	for _, name := range append(r.Snapshots, r.Layers...) {
		if err := a.Line("%s", ui.Clean(name)); err != nil {
			return err
		}
	}
	did := "removed"
	if r.DryRun {
		did = "would be removed"
	}
	a.Note("%s: %s", did, prunedText(len(r.Snapshots), r))
	return nil
}
