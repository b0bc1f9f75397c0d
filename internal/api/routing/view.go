package routing

import (
	"context"

	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Part returns a part of the engine, as the sender of a context's request may see it.
type Part[T any] func(context.Context) T

// View returns the engine as the sender of a context's request may see it. Its methods return the
// part for a group of routes.
type View func(context.Context) roles.Engine

// Snapshots returns the part for snapshots.
func (v View) Snapshots(ctx context.Context) roles.Snapshots { return v(ctx).Snapshots }

// Diffs returns the part for comparisons of snapshots.
func (v View) Diffs(ctx context.Context) roles.Diffs { return v(ctx).Diffs }

// Sandboxes returns the part for sandboxes.
func (v View) Sandboxes(ctx context.Context) roles.Sandboxes { return v(ctx).Sandboxes }

// Branches returns the part for branches and rollbacks.
func (v View) Branches(ctx context.Context) roles.Branches { return v(ctx).Branches }

// Receipts returns the part for receipts.
func (v View) Receipts(ctx context.Context) roles.Receipts { return v(ctx).Receipts }

// Guests returns the part for requests to guests.
func (v View) Guests(ctx context.Context) sandbox.Guests { return v(ctx).Guests }

// Pools returns the part for pools.
func (v View) Pools(ctx context.Context) roles.Pools { return v(ctx).Pools }

// Hosts returns the part for the host's resources.
func (v View) Hosts(ctx context.Context) roles.Hosts { return v(ctx).Hosts }

// Networks returns the part for networks of sandboxes.
func (v View) Networks(ctx context.Context) roles.Networks { return v(ctx).Networks }

// Labels returns the part for labels.
func (v View) Labels(ctx context.Context) roles.Labels { return v(ctx).Labels }
