package catalog

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Use counts a fork as a user of a snapshot until leave, so that a deletion sees it. It
// waits for a branch that is being written under the tag. Whether the snapshot is there,
// opening it shows.
func (c *Catalog) Use(ctx context.Context, tag string) (leave func(), err error) {
	if err := c.awaitBranch(ctx, tag); err != nil {
		return nil, err
	}
	if err := c.tags.use(tag); err != nil {
		return nil, err
	}
	return func() {
		if lostTag := c.tags.leave(tag); lostTag { // it was the last that needed it, perhaps
			c.CollectLater()
		}
	}, nil
}

// awaitBranch waits for the end of a branch that is being written under a tag.
func (c *Catalog) awaitBranch(ctx context.Context, tag string) error {
	e := c.tags.get(tag)
	if e.state != writing || !e.forksWait {
		return nil
	}
	select {
	case <-e.settled:
		return nil
	case <-ctx.Done():
		return sandbox.Ended(ctx, context.Cause(ctx))
	}
}
