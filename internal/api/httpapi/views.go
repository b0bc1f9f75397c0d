package httpapi

import (
	"context"

	"github.com/forkd/forkd/internal/domain/keep"
	"github.com/forkd/forkd/internal/domain/merge"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// shown returns a part of the engine, as the sender of a context's request may see it.
type shown[T any] func(context.Context) T

// views returns the engine as the sender of a context's request may see it. Its methods return the
// part for a group of routes.
type views func(context.Context) roles.Engine

func (v views) snapshots(ctx context.Context) roles.Snapshots { return v(ctx).Snapshots }
func (v views) diffs(ctx context.Context) roles.Diffs         { return v(ctx).Diffs }
func (v views) sandboxes(ctx context.Context) roles.Sandboxes { return v(ctx).Sandboxes }
func (v views) branches(ctx context.Context) roles.Branches   { return v(ctx).Branches }
func (v views) receipts(ctx context.Context) roles.Receipts   { return v(ctx).Receipts }
func (v views) guests(ctx context.Context) sandbox.Guests     { return v(ctx).Guests }
func (v views) pools(ctx context.Context) roles.Pools         { return v(ctx).Pools }
func (v views) hosts(ctx context.Context) roles.Hosts         { return v(ctx).Hosts }
func (v views) networks(ctx context.Context) roles.Networks   { return v(ctx).Networks }
func (v views) labels(ctx context.Context) roles.Labels       { return v(ctx).Labels }

// contest is the part of the engine for comparing sandboxes.
type contest struct {
	roles.Listing
	roles.Forks
	roles.Lifetimes
	roles.Catalog
	sandbox.Guests
}

func (v views) contest(ctx context.Context) contest {
	e := v(ctx)
	return contest{e.Sandboxes, e.Sandboxes, e.Sandboxes, e.Snapshots, e.Guests}
}

func (v views) keep(ctx context.Context) keep.Engine   { return v.contest(ctx) }
func (v views) merge(ctx context.Context) merge.Engine { return v.contest(ctx) }

// nodeEngine has the facts about the node.
type nodeEngine struct {
	roles.Hosts
	roles.Pools
	roles.Catalog
	roles.Listing
}

func (v views) node(ctx context.Context) nodeEngine {
	e := v(ctx)
	return nodeEngine{e.Hosts, e.Pools, e.Snapshots, e.Sandboxes}
}
