package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// CompactSnapshot makes a new snapshot, to, of what tag holds. It shares nothing with others.
func (c *Client) CompactSnapshot(ctx context.Context, tag, to string) (api.SnapshotInfo, error) {
	var out api.SnapshotInfo
	return out, c.call(ctx, http.MethodPost, snapshotPath(tag, "/compact"), api.CompactRequest{To: to}, &out)
}

// CollectLayers removes layers that nothing needs, or, with dryRun, says which it would.
func (c *Client) CollectLayers(ctx context.Context, dryRun bool) (api.CollectResult, error) {
	var out api.CollectResult
	return out, c.call(ctx, http.MethodPost, "/v1/store/gc", api.CollectRequest{DryRun: dryRun}, &out)
}
