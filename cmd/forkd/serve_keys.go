//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/workspace"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// authority is what the daemon keeps of tenants, and the names that it was given.
type authority struct {
	keys      *keys.Store
	published *tenancy.Published
	weights   *tenancy.Weights
	// workspaces are names of sandboxes.
	workspaces *workspace.Book
}

// openKeys reads what is kept in the data directory. The engine must hold that: of two
// daemons the second would write over what the first has.
func openKeys(ctx context.Context, data string, groups *cgroup.Root, log *slog.Logger,
	opened *undo.Stack) (a authority, err error) {
	if a.keys, err = keys.Open(keys.Config{Path: filepath.Join(data, "keys.json"), Log: log}); err != nil {
		return a, err
	}
	if a.published, err = tenancy.OpenPublished(filepath.Join(data, "published.json")); err != nil {
		return a, err
	}
	if a.weights, err = openWeights(filepath.Join(data, "tenants.json"), groups, log); err != nil {
		return a, err
	}
	if a.workspaces, err = workspace.Open(filepath.Join(data, "workspaces.json"), nil); err != nil {
		return a, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var writes sync.WaitGroup
	writes.Go(func() { a.keys.Run(ctx) })
	opened.Push(func() {
		stop()
		writes.Wait()
	})
	return a, nil
}

// openWeights opens the tenants' weights and has them hold for the sandboxes that run.
func openWeights(path string, groups *cgroup.Root, log *slog.Logger) (*tenancy.Weights, error) {
	var apply func(tenant string, weight int) error
	if groups != nil {
		apply = func(tenant string, weight int) error {
			err := groups.SetTenantWeight(tenant, weight)
			if errors.Is(err, cgroup.ErrUnsupported) {
				return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonLimitUnsupported,
					"it cannot be enforced on this host: %w", err)
			}
			return err
		}
	}
	weights, err := tenancy.OpenWeights(path, apply)
	if err != nil {
		return nil, err
	}
	if err := weights.Apply(); err != nil {
		log.Warn("weights of tenants do not hold", "err", err)
	}
	return weights, nil
}
