package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newPoolCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pool [TAG SIZE]",
		Short: "Show the pools of prepared VMs, or set a pool's size",
		Long: "Show the pools of prepared VMs, or set the size of a snapshot's pool. A prepared VM has loaded its\n" +
			"snapshot and waits to become a child. A fork from the pool is several times faster. Pools refill\n" +
			"in the background.",
		Example:           "  forkd pool\n  forkd pool pyagent 100",
		ValidArgsFunction: a.complete().tags(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return fmt.Errorf("want TAG and SIZE, or no argument")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			size := 0
			if len(args) == 2 {
				var err error
				if size, err = strconv.Atoi(args[1]); err != nil || size < 0 || size > api.MaxPool {
					return exit.UsageError{Err: fmt.Errorf("SIZE %q: want 0 to %d", args[1], api.MaxPool)}
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if len(args) == 2 {
					return c.SetPool(ctx, args[0], size)
				}
				pools, err := c.Pools(ctx)
				if err != nil {
					return err
				}
				return a.printPools(pools)
			})
		},
	}
}

func (a *app) printPools(pools []api.Pool) error {
	if a.JSON {
		return a.Value(pools)
	}
	var rows [][]string
	for _, p := range pools {
		rows = append(rows, []string{p.Tag, fmt.Sprint(p.Size), fmt.Sprint(p.Ready), fmt.Sprintf("%d MiB", p.MemoryMiB),
			fmt.Sprint(p.VCPUs)})
	}
	return a.Table([]string{"SNAPSHOT", "SIZE", "READY", "MEMORY", "VCPUS"}, rows)
}
