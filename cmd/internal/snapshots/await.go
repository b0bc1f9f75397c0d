// Package snapshots has operations of forkd and forkd-bench on snapshots that take more than one
// request. It does not print. The trap: a snapshot may be deleted, or fail, during a wait.
package snapshots

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// poll is the interval of checks of a snapshot being written.
const poll = 20 * time.Millisecond

// AwaitReady waits until a snapshot being written is ready.
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
