package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// groupFlags name a private network instead of a snapshot.
type groupFlags struct{ network, prefix string }

// addFlags adds the flags. They exclude all other flags of the command, except the number of copies.
func (g *groupFlags) addFlags(cmd *cobra.Command) {
	var others []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "count" {
			others = append(others, f.Name)
		}
	})
	cmd.Flags().StringVar(&g.network, "group", "", "copy all running sandboxes of private network `NAME`, 1 to 15 times")
	cmd.Flags().StringVar(&g.prefix, "group-prefix", "", "with --group: name the copies' networks `PREFIX`-1 and so on "+
		"(default: the network's name)")
	for _, name := range others {
		cmd.MarkFlagsMutuallyExclusive("group", name)
	}
}

// args wants no tag with --group.
func (g *groupFlags) args(others cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case g.network != "":
			return cobra.NoArgs(cmd, args)
		case g.prefix != "":
			return exit.UsageError{Err: errors.New("--group-prefix needs --group")}
		}
		return others(cmd, args)
	}
}

// fork copies the network and shows the copies.
func (g *groupFlags) fork(ctx context.Context, a *app, n int) error {
	return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		res, err := c.PrivateNetworks().Fork(ctx, g.network, api.ForkGroupRequest{N: &n, Prefix: g.prefix})
		if err != nil {
			return err
		}
		if err := showGroup(a, res); err != nil {
			return err
		}
		var made, failed []api.GroupCopy
		for _, c := range res.Copies {
			if c.Error == "" {
				made = append(made, c)
			} else {
				failed = append(failed, c)
			}
		}
		a.Note("%d of %d copies of %s made, which was paused for %.1f ms", len(made), len(res.Copies), g.network,
			res.PauseMS)
		if len(failed) == 0 {
			return nil
		}
		return &client.Error{Code: api.CodePartial,
			Message: fmt.Sprintf("%d of %d copies could not be made: %s", len(failed), len(res.Copies), failed[0].Error)}
	})
}

func showGroup(a *app, res api.ForkGroupResult) error {
	if a.JSON {
		return a.Value(res)
	}
	var rows [][]string
	for _, c := range res.Copies {
		for _, s := range c.Sandboxes {
			alias := ""
			if s.NetJoin != nil {
				alias = s.NetJoin.Alias
			}
			rows = append(rows, []string{s.ID, alias, c.Network, string(s.Status)})
		}
	}
	return a.Table([]string{"ID", "ALIAS", "NETWORK", "STATUS"}, rows)
}
