package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// CompactSnapshot makes a new snapshot, to, of what tag holds. It shares nothing with others.
// progress is called with each step as it begins, goes on and ends; it may be nil.
func (c *Client) CompactSnapshot(ctx context.Context, tag, to string,
	progress func(api.Step)) (api.SnapshotInfo, error) {
	return makeSnapshot(ctx, &c.connection, snapshotPath(tag, "/compact"), api.CompactRequest{To: to}, progress)
}

// CollectLayers removes layers that nothing needs, or, with dryRun, says which it would.
func (c *Client) CollectLayers(ctx context.Context, dryRun bool) (api.CollectResult, error) {
	var out api.CollectResult
	return out, c.call(ctx, http.MethodPost, "/v1/store/gc", api.CollectRequest{DryRun: dryRun}, &out)
}
