package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/branchbench"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newBranchCommand(a *app) *cobra.Command {
	cfg := branchbench.Config{}
	var modes []string
	var memory []int
	var plot string
	cmd := &cobra.Command{
		Use:   "branch [TAG...]",
		Short: "Branch a sandbox that writes, again and again; the pauses, and beside them the bare copy",
		Long: "For each tag and mode: fork a child, have its Python write over a buffer at a steady rate and stamp its clock in a loop, and\n" +
			"branch it again and again without waiting. The snapshots must be of an image with a warm Python; without a tag they are made of\n" +
			"python-numpy with the memory that --memory says, and deleted afterwards.",
		Example:           "  forkd-bench branch --json --plot branch.svg\n  forkd-bench branch pyagent --runs 20 --json",
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(cfg.Runs) == 0 || slices.Min(cfg.Runs) < 1 || cfg.DirtyMiB < 0 || cfg.RateMiB < 0 || cfg.DiffRuns < 0 {
				return exit.UsageError{Err: errors.New("--runs is at least 1, --diff-runs, --dirty and --rate at least 0")}
			}
			if len(modes) == 0 || len(args) == 0 && len(memory) == 0 {
				return exit.UsageError{Err: errors.New("there is nothing to measure: name modes, and tags or --memory")}
			}
			for _, m := range modes {
				cfg.Modes = append(cfg.Modes, api.BranchMode(m))
			}
			b, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			cfg.Client, cfg.Floors, cfg.Tags, cfg.Say = b.client, b.floors, args, a.say
			cases, err := a.measureBranches(cmd.Context(), cfg, memory)
			if err != nil {
				return err
			}
			for i := range cases {
				cases[i].Where, cases[i].CPUs = b.where, b.cpus
			}
			if err := a.writePlot(plot, branchbench.Plot(cases), b.where, cases[0].CPUs); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(cases)
			}
			return a.printBranch(cases)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&cfg.Runs, "runs", []int{20, 8},
		"branches in a row, by tag or size of memory; the last is for those left")
	f.IntVar(&cfg.DiffRuns, "diff-runs", 5, "the same for mode diff, whose pauses vary little; 0: as --runs")
	f.IntVar(&cfg.DirtyMiB, "dirty", 256, "MiB that the guest writes over and over; at most a quarter of its memory")
	f.IntVar(&cfg.RateMiB, "rate", 50, "MiB per second that it writes")
	f.IntSliceVar(&memory, "memory", []int{1536, 256}, "MiB of memory of the sandboxes, without a tag")
	f.StringSliceVar(&modes, "modes", []string{"live", "diff"}, "modes to measure: live, diff, full")
	f.StringVar(&plot, "plot", "", "write the figures as an SVG to this file")
	return cmd
}

// measureBranches measures branches. Without a given tag it makes its own snapshots. It removes all
// of them, also after an error.
func (a *app) measureBranches(ctx context.Context, cfg branchbench.Config,
	memory []int) (_ []branchbench.Case, err error) {
	unlock, err := lock("branch")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := branchbench.Sweep(ctx, cfg.Client, cfg.Tags, cfg.Say); err != nil {
		return nil, err
	}
	if len(cfg.Tags) > 0 {
		return branchbench.Run(ctx, cfg)
	}
	// The image must be built by this version: an older image's agent may not support the requests.
	if err := a.forkd(ctx, "image", "build", recipe); err != nil {
		return nil, err
	}
	sources := branchbench.Sources{Client: cfg.Client, Image: recipe,
		Create: func(ctx context.Context, req api.CreateSnapshotRequest) (api.SnapshotInfo, error) {
			cfg.Say("making snapshot " + req.Tag)
			return cfg.Client.CreateSnapshot(ctx, req, nil)
		}}
	defer func() { err = errors.Join(err, sources.Remove(ctx)) }()
	if cfg.Tags, err = sources.Make(ctx, memory); err != nil {
		return nil, err
	}
	return branchbench.Run(ctx, cfg)
}

func (a *app) printBranch(cases []branchbench.Case) error {
	for _, c := range cases {
		if err := a.Facts(
			"branches", fmt.Sprintf("%d %s of a child of %s (%d MiB) that writes %d MiB/s over %d MiB",
				c.Runs, c.Mode, c.Tag, c.SourceMiB, c.DirtyMiBPerS, c.DirtyMiB),
			"pause, p50 p90 p99", ui.Millis(c.PauseP50MS)+", "+ui.Millis(c.PauseP90MS)+", "+ui.Millis(c.PauseP99MS),
			"pause's steps, p50", stepLine(c.PauseSteps),
			"pause, first and last", ui.Millis(c.PauseFirstMS)+", "+ui.Millis(c.PauseLastMS),
			"copied in it", fmt.Sprintf("%d KiB", c.PausedBytes>>10),
			"bare copy of that", known(c.FloorMS, ui.Millis),
			"guest's gap, p50 p99", ui.Millis(c.GuestGapP50MS)+", "+ui.Millis(c.GuestGapP99MS)+"; without a branch "+
				ui.Millis(c.IdleGapMS),
			"returned after, p50", ui.Millis(c.ReturnP50MS)+", "+ui.Millis(c.AfterResumeP50MS)+" after the source ran again",
			"ready after", ui.Millis(c.TotalMS),
			"written", fmt.Sprintf("%d KiB in %d rounds", c.BytesWritten>>10, c.Rounds),
			"where", place(c.Where, c.CPUs),
		); err != nil {
			return err
		}
	}
	return nil
}
