package catalog

import (
	"context"

	"github.com/forkd/forkd/internal/sandbox"
)

// Use counts a fork as a user of a snapshot until leave, so that a deletion sees it. It
// waits for a branch that is being written under the tag. Whether the snapshot is there,
// opening it shows.
func (c *Catalog) Use(ctx context.Context, tag string) (leave func(), err error) {
	if err := c.awaitBranch(ctx, tag); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.tags[tag]
	if e == nil {
		e = &entry{}
		c.tags[tag] = e
	}
	if err := e.refusal(tag); err != nil {
		return nil, err
	}
	e.users++
	c.uses++
	return func() { c.leave(tag) }, nil
}

func (c *Catalog) leave(tag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.tags[tag]
	if e.users--; e.users > 0 {
		return
	}
	c.pruneLocked(tag)
	for _, former := range c.retired {
		if former == tag { // it was the last that needed it, perhaps
			c.CollectLater()
			return
		}
	}
}

// awaitBranch waits for the end of a branch that is being written under a tag.
func (c *Catalog) awaitBranch(ctx context.Context, tag string) error {
	c.mu.Lock()
	e := c.entryLocked(tag)
	c.mu.Unlock()
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

// refuse is an error that says so while nothing can be done with a tag's snapshot.
func (c *Catalog) refuse(tag string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entryLocked(tag).refusal(tag)
}
