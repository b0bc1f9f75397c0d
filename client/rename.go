package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// RenameSnapshot gives a snapshot another tag. Its sandboxes and the snapshots built on it stay.
func RenameSnapshot(ctx context.Context, c *Client, tag, to string) (api.SnapshotInfo, error) {
	var out api.SnapshotInfo
	return out, c.call(ctx, http.MethodPost, snapshotPath(tag, "/rename"), api.RenameRequest{To: to}, &out)
}
