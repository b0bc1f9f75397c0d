//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/workspace"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// authority holds the daemon's stores of keys, tenants and names.
type authority struct {
	keys      *keys.Store
	published *tenancy.Published
	weights   *tenancy.Weights
	// workspaces are names of sandboxes.
	workspaces *workspace.Book
}

// openKeys opens the stores in the data directory. The engine must hold the directory, because a
// second daemon would overwrite the files of the first.
func openKeys(ctx context.Context, data, shared string, groups *cgroup.Root, log *slog.Logger,
	opened *undo.Stack) (a authority, err error) {
	if a.keys, err = keys.Open(keys.Config{Path: filepath.Join(data, "keys.json"), Shared: shared, Log: log}); err != nil {
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

// openWeights opens the tenants' weights and applies them to running sandboxes.
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

// publishedList is the list of published snapshots. The engine has it before it is read.
type publishedList struct {
	atomic.Pointer[tenancy.Published]
}

// has reports whether all tenants may fork a snapshot. Until the list is read, each snapshot counts as published, so
// it does not expire.
func (l *publishedList) has(tag, contentHash string) bool {
	p := l.Load()
	return p == nil || p.Has(tag, contentHash)
}
