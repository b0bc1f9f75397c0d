package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newNetCreateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Make a private network",
		Long: "Make a private network. Sandboxes join it when they are forked, with --net-join, and find each\n" +
			"other by name: ALIAS.forkd.internal.",
		Example: "  forkd net create shop\n  forkd fork postgres --net-join shop:db\n  forkd fork web --net-join shop:web",
		Args:    cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			n, err := c.PrivateNetworks().Create(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(n)
			}
			a.Note("private network %s is made", n.Name)
			return nil
		}),
	}
}

func newNetLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the private networks",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.PrivateNetworks().List(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			var rows [][]string
			for _, n := range list {
				rows = append(rows, []string{n.Name, fmt.Sprint(len(n.Members)),
					ui.Age(time.Unix(n.CreatedUnix, 0), time.Now())})
			}
			return a.Table([]string{"NAME", "MEMBERS", "AGE"}, rows)
		}),
	}
}

func newNetInspectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show the members of a private network",
		Args:  cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			n, err := c.PrivateNetworks().Get(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(n)
			}
			var rows [][]string
			for _, m := range n.Members {
				rows = append(rows, []string{m.Name, m.Addr, m.Sandbox})
			}
			return a.Table([]string{"NAME", "ADDRESS", "SANDBOX"}, rows)
		}),
	}
}

func newNetRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove private networks without members",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			for _, name := range args {
				if err := c.PrivateNetworks().Remove(ctx, name); err != nil {
					return err
				}
				a.Note("private network %s is removed", name)
			}
			if a.JSON {
				return a.Value(args)
			}
			return nil
		}),
	}
}

// joinFlag is the flag of commands that put sandboxes into a private network.
type joinFlag struct{ text string }

func (j *joinFlag) addFlag(f *pflag.FlagSet) {
	f.StringVar(&j.text, "net-join", "", "join private network `NAME[:ALIAS]`; others find the child as ALIAS.forkd.internal "+
		"(default: its id)")
}

// join returns the private network of a request, or nil.
func (j *joinFlag) join() (*api.NetJoin, error) {
	if j.text == "" {
		return nil, nil
	}
	name, alias, has := strings.Cut(j.text, ":")
	if name == "" || has && alias == "" {
		return nil, exit.UsageError{Err: errors.New("--net-join wants NAME or NAME:ALIAS")}
	}
	return &api.NetJoin{Network: name, Alias: alias}, nil
}
