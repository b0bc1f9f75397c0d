package catalog

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Use counts a fork as a user of a snapshot until leave, so that a deletion sees it. It waits for a
// branch being written under the tag, and for a renaming. It does not check that the snapshot exists; opening it does.
func (c *Catalog) Use(ctx context.Context, tag string) (leave func(), err error) {
	if err := c.awaitBranch(ctx, tag); err != nil {
		return nil, err
	}
	if err := c.tags.use(tag); err != nil {
		return nil, err
	}
	return func() {
		if lostTag := c.tags.leave(tag); lostTag { // perhaps it was the last user
			c.CollectLater()
		}
	}, nil
}

// AwaitDeleted waits for the end of a deletion under a tag, if there is one.
func AwaitDeleted(ctx context.Context, c *Catalog, tag string) error {
	e := c.tags.get(tag)
	if e.state != deleting {
		return nil
	}
	select {
	case <-e.settled:
		return nil
	case <-ctx.Done():
		return sandbox.Ended(ctx, context.Cause(ctx))
	}
}

// awaitBranch waits for the end of a branch being written under a tag, or of its renaming.
func (c *Catalog) awaitBranch(ctx context.Context, tag string) error {
	e := c.tags.get(tag)
	if e.state != renaming && (e.state != writing || !e.forksWait) {
		return nil
	}
	select {
	case <-e.settled:
		return nil
	case <-ctx.Done():
		return sandbox.Ended(ctx, context.Cause(ctx))
	}
}
