package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// CompactSnapshot makes a new snapshot, named to, with the content of snapshot tag. The new
// snapshot shares no layers. progress is called when a step begins, advances or ends. It may be
// nil.
func (c *Client) CompactSnapshot(ctx context.Context, tag, to string,
	progress func(api.Step)) (api.SnapshotInfo, error) {
	return makeSnapshot(ctx, &c.connection, snapshotPath(tag, "/compact"), api.CompactRequest{To: to}, progress)
}

// CollectLayers removes unused layers. With dryRun it only returns the layers it would remove.
func (c *Client) CollectLayers(ctx context.Context, dryRun bool) (api.CollectResult, error) {
	var out api.CollectResult
	return out, c.call(ctx, http.MethodPost, "/v1/store/gc", api.CollectRequest{DryRun: dryRun}, &out)
}
