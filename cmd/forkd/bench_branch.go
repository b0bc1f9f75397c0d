package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd/internal/branchbench"
	"github.com/forkd/forkd/cmd/forkd/internal/ui"
)

func newBenchBranchCommand(a *app) *cobra.Command {
	cfg := branchbench.Config{}
	var modes []string
	cmd := &cobra.Command{
		Use:   "branch TAG...",
		Short: "Branch a sandbox that writes, again and again; the pauses, and beside them the bare copy",
		Long: "For each tag and mode: fork a child, have its Python write over a buffer at a steady rate and stamp its clock in a loop, and\n" +
			"branch it again and again without waiting. The snapshots must be of an image with a warm Python.",
		Example:           "  forkd bench branch pyagent --runs 20 --json",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTags(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Runs < 1 || cfg.DirtyMiB < 0 || cfg.RateMiB < 0 {
				return usageError{errors.New("--runs is at least 1, --dirty and --rate at least 0")}
			}
			for _, m := range modes {
				cfg.Modes = append(cfg.Modes, api.BranchMode(m))
			}
			c, where, err := a.daemon(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			cfg.Client, cfg.Tags, cfg.Say = c, args, func(s string) { a.Note("%s", s) }
			cases, err := branchbench.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			for i := range cases {
				cases[i].Where = string(where.Where)
			}
			if a.JSON {
				return a.Value(cases)
			}
			return a.printBranchBench(cases)
		},
	}
	cmd.Flags().IntVar(&cfg.Runs, "runs", 20, "branches per case, in a row")
	cmd.Flags().IntVar(&cfg.DirtyMiB, "dirty", 64, "MiB that the guest writes over and over; it must have that much free memory")
	cmd.Flags().IntVar(&cfg.RateMiB, "rate", 50, "MiB per second that it writes")
	cmd.Flags().StringSliceVar(&modes, "modes", []string{"live", "diff"}, "modes to measure: live, diff, full")
	return cmd
}

func (a *app) printBranchBench(cases []branchbench.Case) error {
	for _, c := range cases {
		if err := a.Facts(
			"branches", fmt.Sprintf("%d %s of a child of %s (%d MiB) that writes %d MiB/s over %d MiB", c.Runs, c.Mode, c.Tag, c.SourceMiB, c.DirtyMiBPerS, c.DirtyMiB),
			"pause, p50 p90 p99", ui.Millis(c.PauseP50MS)+", "+ui.Millis(c.PauseP90MS)+", "+ui.Millis(c.PauseP99MS),
			"pause, first and last", ui.Millis(c.PauseFirstMS)+", "+ui.Millis(c.PauseLastMS),
			"copied in it", fmt.Sprintf("%d KiB, a bare copy takes %s", c.PausedBytes>>10, ui.Millis(c.FloorMS)),
			"guest's gap, p50 p99", ui.Millis(c.GuestGapP50MS)+", "+ui.Millis(c.GuestGapP99MS)+"; without a branch "+ui.Millis(c.IdleGapMS),
			"returned after, p50", ui.Millis(c.ReturnP50MS),
			"ready after", ui.Millis(c.TotalMS),
			"written", fmt.Sprintf("%d KiB in %d rounds", c.BytesWritten>>10, c.Rounds),
			"where", c.Where,
		); err != nil {
			return err
		}
	}
	return nil
}
