package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// PinSnapshot keeps a snapshot from expiry and from deletion without force.
func PinSnapshot(ctx context.Context, c *Client, tag string) (api.SnapshotInfo, error) {
	return LabelSnapshot(ctx, c, tag, api.LabelsRequest{Set: map[string]string{retention.Pin: "true"}})
}

// UnpinSnapshot undoes PinSnapshot.
func UnpinSnapshot(ctx context.Context, c *Client, tag string) (api.SnapshotInfo, error) {
	return LabelSnapshot(ctx, c, tag, api.LabelsRequest{Remove: []string{retention.Pin}})
}

// ExpireSnapshot sets the end of a snapshot: a duration from now such as 24h, by the daemon's clock, a time in
// RFC 3339, or never.
func ExpireSnapshot(ctx context.Context, c *Client, tag, end string) (api.SnapshotInfo, error) {
	if end == "never" {
		return LabelSnapshot(ctx, c, tag, api.LabelsRequest{Remove: []string{retention.Expires}})
	}
	return LabelSnapshot(ctx, c, tag, api.LabelsRequest{Set: map[string]string{retention.Expires: end}})
}

// PruneSnapshots removes the snapshots that are due by the rules of their labels. With dryRun it only returns them.
func PruneSnapshots(ctx context.Context, c *Client, dryRun bool) (api.PruneResult, error) {
	var out api.PruneResult
	return out, c.call(ctx, http.MethodPost, "/v1/store/prune", api.PruneRequest{DryRun: dryRun}, &out)
}
