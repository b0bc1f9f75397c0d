package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newPromoteCommand(a *app) *cobra.Command {
	var req api.PromoteRequest
	var kill bool
	cmd := &cobra.Command{
		Use:   "promote ID",
		Short: "Put a sandbox in the place of the one that it was forked from",
		Long: "Put a sandbox in the place of its parent. The parent keeps its ID, ports, network policy, limits and\n" +
			"deadline, and gets the child's memory, processes and files. The child's own ID ends. A snapshot\n" +
			"keeps the parent's old state: `forkd rollback` undoes the promotion. If it fails, both stay\n" +
			"unchanged.",
		Example:           "  forkd branch sb-5f3a-0001 --tag tried -n 10\n  forkd promote sb-0a3e77c1-0002",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if kill {
				if req.Tag != "" {
					return exit.UsageError{Err: errors.New("--tag and --discard exclude each other: no snapshot is made")}
				}
				req.Parent = api.PromoteKill
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return promote(ctx, a, c, args[0], req)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Place, "place", "", "replace `PARENT`, an ancestor (default: the nearest)")
	f.StringVar(&req.Tag, "tag", "", "name the snapshot of the parent's old state `TAG` (default: generated)")
	f.BoolVar(&kill, "discard", false, "make no snapshot of the parent's old state")
	return cmd
}

func promote(ctx context.Context, a *app, c *client.Client, id string, req api.PromoteRequest) error {
	busy := a.Busy("promote", "moving "+id+" to its new place")
	res, err := client.Promote(ctx, c, id, req)
	busy.End()
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.Value(res)
	}
	if res.KeptIn != "" {
		a.Note("`forkd rollback %s %s` undoes it", res.Sandbox.ID, res.KeptIn)
	}
	return a.Line("%s", res.Sandbox.ID)
}
