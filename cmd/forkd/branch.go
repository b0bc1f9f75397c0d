package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newBranchCommand(a *app) *cobra.Command {
	var req api.BranchRequest
	var mode string
	var noWait bool
	var maxPause time.Duration
	var network netFlags
	var labelled *labelFlag
	var secrets secretFlags
	var rules retentionFlags
	cmd := &cobra.Command{
		Use:   "branch ID",
		Short: "Snapshot a running sandbox, and fork children of it",
		Long: "Make a snapshot of a running sandbox. The sandbox continues after a short pause. With -n also fork\n" +
			"children of the snapshot; they continue at the same point.\n\n" +
			"  live  copy memory while the sandbox runs, then pause it for the remaining dirty pages\n" +
			"  diff  pause the sandbox while all pages changed since its snapshot are copied\n" +
			"  full  like live; the new snapshot is complete and depends on no other\n\n" +
			"Failed children are listed with the reason. The exit code is 11 if some children failed; if all\n" +
			"failed, it is the code of the first failure. The snapshot is kept in any case.",
		Example: "  forkd branch sb-5f3a-0001 --tag tried-it\n" +
			"  forkd branch sb-5f3a-0001 -n 10\n" +
			"  forkd branch sb-5f3a-0001 --mode diff --max-pause 5ms\n" +
			"  forkd branch sb-5f3a-0001 --tag later --no-wait && forkd fork later",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if maxPause < 0 {
				return exit.UsageError{Err: fmt.Errorf("--max-pause is %s, want 0 (no limit) or more", maxPause)}
			}
			req.Mode, req.MaxPauseMS = api.BranchMode(mode), float64(maxPause)/float64(time.Millisecond)
			policy, err := network.policy()
			if err != nil {
				return err
			}
			req.Network = policy
			if req.Labels, err = rules.labels(labelled.set); err != nil {
				return err
			}
			if req.Secrets, err = secrets.refs(); err != nil {
				return err
			}
			if noWait {
				req.Wait = new(bool)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				began := time.Now()
				res, err := c.Branch(ctx, args[0], req)
				if err != nil {
					return unlessMade(ctx, err, madeBranch(c, args[0], req.Tag, began))
				}
				return a.branched(res)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&req.Tag, "tag", "t", "", "name the new snapshot `TAG` (default: derived from the sandbox's ID)")
	f.StringVar(&mode, "mode", "", "copy in `MODE`: live, diff or full (default: live)")
	f.IntVarP(&req.N, "count", "n", 0, "fork `N` children, up to 1000")
	f.BoolVar(&req.Force, "force", false,
		"branch even if the disk has lost writes; the snapshot may be incomplete")
	f.BoolVar(&noWait, "no-wait", false, "return when the sandbox runs again, before the snapshot is written")
	f.DurationVar(&maxPause, "max-pause", 0,
		"fail if the sandbox must be paused for more than `DURATION` (default: no limit)")
	labelled = addLabelFlag(f, "the snapshot and the children, besides the sandbox's labels,")
	network.addFlags(cmd, "the sandbox's")
	secrets.addFlags(f)
	rules.addFlags(f)
	cmd.MarkFlagsMutuallyExclusive("no-wait", "count")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]cobra.Completion{
		"live\tcopy while it runs", "diff\tpause, and copy what differs", "full\tdepend on no other snapshot",
	}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// branched prints the result of a branch.
func (a *app) branched(res api.BranchResult) error {
	if err := a.printBranched(res); err != nil {
		return err
	}
	if res.Status == api.SnapshotWriting {
		a.Note("%s is being written; a fork from it waits until it is ready", res.Tag)
	}
	children := childrenOf(res)
	ok, failed := len(children.OK()), children.Failed()
	switch {
	case len(children.Sandboxes) == 0:
		return nil
	case ok == 0:
		return hints.With(&client.Error{
			Code: failed[0].Code, Message: fmt.Sprintf("all %d children failed: %s", len(failed), failed[0].Error),
		}, fmt.Sprintf("the snapshot is there: `forkd fork %s` tries again", res.Tag))
	}
	return a.countForked(children)
}

func (a *app) printBranched(res api.BranchResult) error {
	if a.JSON {
		return a.Value(res)
	}
	err := a.Table([]string{"TAG", "STATUS", "PAUSE", "WRITTEN", "TOTAL"}, [][]string{{
		res.Tag, string(res.Status), pauseOf(res.SnapshotInfo), ui.Bytes(res.BytesWritten), ui.Millis(res.TotalMS),
	}})
	if err != nil || len(res.Children) == 0 {
		return err
	}
	if !a.Quiet {
		if err := a.Line(""); err != nil {
			return err
		}
	}
	return a.printForked(childrenOf(res))
}

// childrenOf returns the children in the form of the client's Fork.
func childrenOf(res api.BranchResult) client.ForkResult {
	wall := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	return client.ForkResult{
		Sandboxes: res.Children, PoolReady: res.PoolReady,
		ArmedWall: wall(res.ArmedWallMS), ReadyWall: wall(res.ReadyWallMS),
	}
}

func pauseOf(s api.SnapshotInfo) string {
	if s.PauseMS == nil {
		return ""
	}
	return ui.Millis(*s.PauseMS)
}
