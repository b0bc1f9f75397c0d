package sandboxes

import (
	"context"

	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/keep"
	"github.com/forkd/forkd/internal/domain/merge"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// contest is the part of the engine for comparing sandboxes.
type contest struct {
	roles.Listing
	roles.Forks
	roles.Lifetimes
	roles.Catalog
	sandbox.Guests
}

func contestOf(ctx context.Context, v routing.View) contest {
	e := v(ctx)
	return contest{e.Sandboxes, e.Sandboxes, e.Sandboxes, e.Snapshots, e.Guests}
}

func keepEngine(v routing.View) routing.Part[keep.Engine] {
	return func(ctx context.Context) keep.Engine { return contestOf(ctx, v) }
}

func mergeEngine(v routing.View) routing.Part[merge.Engine] {
	return func(ctx context.Context) merge.Engine { return contestOf(ctx, v) }
}
