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

func newTenantCommand(a *app) *cobra.Command {
	return group("tenant", "Show and set tenants' shares of the host", newTenantWeightCommand(a))
}

func newTenantWeightCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "weight TENANT [WEIGHT]",
		Short: "Show or set a tenant's share of CPU time",
		Long: "Show or set a tenant's share of CPU time, from 1 to 10000. Under contention, all sandboxes of the\n" +
			"tenant together have this share. Other tenants, and each sandbox of the operator, have 100 by\n" +
			"default. A change takes effect immediately.",
		Example: "  forkd tenant weight acme 200",
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := tenantWeight(ctx, c, args)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(t)
			}
			if len(args) == 2 {
				a.Note("the sandboxes of tenant %s have a CPU weight of %d together", t.Name, t.CPUWeight)
				return nil
			}
			_, err = fmt.Fprintln(a.Out, t.CPUWeight)
			return err
		}),
	}
}

func tenantWeight(ctx context.Context, c *client.Client, args []string) (api.Tenant, error) {
	if len(args) == 1 {
		return c.Tenant(ctx, args[0])
	}
	weight, err := strconv.Atoi(args[1])
	if err != nil || weight < 1 || weight > 10_000 {
		return api.Tenant{}, exit.UsageError{Err: fmt.Errorf("WEIGHT is %q, want 1 to 10000", args[1])}
	}
	return c.SetTenant(ctx, args[0], api.SetTenantRequest{CPUWeight: weight})
}
