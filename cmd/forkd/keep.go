package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newKeepCommand(a *app) *cobra.Command {
	var req api.KeepRequest
	var by string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "keep --best K (--by CMD|--by-file PATH) (ID...|--of TAG|ID)",
		Short: "Score sandboxes, keep the best and end the rest",
		Long: "Score sandboxes, keep the K best and end the others. CMD runs in each sandbox by sh. The number in\n" +
			"the first line of its output is the score, and the highest score is the best. No sandbox ends\n" +
			"before all have a score. A sandbox without a score (no number, an error, a time-out) is listed\n" +
			"last and kept, unless --end-unscored is given. The exit code is 4 if no sandbox has a score; all\n" +
			"are then kept.",
		Example: "  forkd keep --best 1 --by 'cat score' --of tried\n" +
			"  forkd keep --best 2 --by-file /tmp/loss --lowest sb-5f3a-0001 sb-5f3a-0002 sb-5f3a-0003 --dry-run",
		ValidArgsFunction: a.complete().ids(),
		Args: func(_ *cobra.Command, args []string) error {
			if (req.Of != "") == (len(args) > 0) {
				return errors.New("name sandboxes, or give --of")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Best < 1 {
				return exit.UsageError{Err: fmt.Errorf("--best is %d, want at least 1", req.Best)}
			}
			if timeout <= 0 || timeout > 24*time.Hour {
				return exit.UsageError{Err: fmt.Errorf("--timeout is %s, want more than 0 and at most 24h", timeout)}
			}
			if req.IDs, req.TimeoutSecs = args, timeout.Seconds(); by != "" {
				req.Args = []string{"sh", "-c", by}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return keepBest(ctx, a, c, req)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&req.Best, "best", 0, "keep the `K` best")
	f.StringVar(&by, "by", "", "run `CMD` in each to print the score")
	f.StringVar(&req.File, "by-file", "", "read the score from the first line of `PATH` in the guest")
	f.StringVar(&req.Of, "of", "", "compare all children of `SNAPSHOT`, or of a sandbox and its branches")
	f.BoolVar(&req.Lowest, "lowest", false, "keep the lowest scores, not the highest")
	f.DurationVar(&timeout, "timeout", time.Minute, "limit each score to `DURATION`")
	f.BoolVar(&req.EndUnscored, "end-unscored", false, "end sandboxes without a score too")
	f.BoolVar(&req.DryRun, "dry-run", false, "score them, and end none")
	cmd.MarkFlagsOneRequired("by", "by-file")
	cmd.MarkFlagsMutuallyExclusive("by", "by-file")
	_ = cmd.MarkFlagRequired("best") // the flag exists
	return cmd
}

func keepBest(ctx context.Context, a *app, c *client.Client, req api.KeepRequest) error {
	busy := a.Busy("keep", "scoring the sandboxes")
	res, err := client.Keep(ctx, c, req)
	busy.End()
	if err != nil {
		return err
	}
	if err := printKept(a, res); err != nil {
		return err
	}
	switch scored := len(res.Sandboxes) - res.Unscored; {
	case scored == 0:
		return codedError{errors.New("no sandbox has a score, and none was ended"), api.CodeConflict}
	case scored < req.Best && res.Unscored > 0:
		a.Note("only %d of %d could be scored, and %d were to be kept", scored, len(res.Sandboxes), req.Best)
	}
	return nil
}

func printKept(a *app, res api.KeepResult) error {
	if a.JSON {
		return a.Value(res)
	}
	var rows [][]string
	for _, s := range res.Sandboxes {
		score := "-"
		if s.Score != nil {
			score = strconv.FormatFloat(*s.Score, 'g', -1, 64)
		}
		if !a.Quiet || s.Outcome == api.KeepKept {
			rows = append(rows, []string{s.ID, score, keepWord(s.Outcome, res.DryRun), ui.Clean(s.Problem)})
		}
	}
	return a.Table([]string{"ID", "SCORE", "OUTCOME", "PROBLEM"}, rows)
}

// keepWord returns an outcome in words. A dry run has ended none.
func keepWord(o api.KeepOutcome, dryRun bool) string {
	switch {
	case dryRun && o == api.KeepEnded:
		return "would end"
	case dryRun && o == api.KeepKept:
		return "would keep"
	}
	return string(o)
}
