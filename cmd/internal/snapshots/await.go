// Package snapshots is what forkd and forkd-bench do with snapshots beyond one request.
// It prints nothing. The trap: a snapshot may go away, or fail, while it is waited for.
package snapshots

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// poll is how often a snapshot that is being written is looked at.
const poll = 20 * time.Millisecond

// AwaitReady waits until a snapshot that is being written is ready.
func AwaitReady(ctx context.Context, c *client.Client, tag string) error {
	t := time.NewTicker(poll)
	defer t.Stop()
	for {
		info, err := c.Snapshot(ctx, tag)
		switch {
		case err != nil:
			return err
		case info.Status == api.SnapshotReady:
			return nil
		case info.Status == api.SnapshotFailed:
			return failed(tag, info.Warning)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

func failed(tag string, why *string) error {
	if why == nil || *why == "" {
		return fmt.Errorf("snapshot %s could not be made", tag)
	}
	return fmt.Errorf("snapshot %s could not be made: %s", tag, *why)
}
