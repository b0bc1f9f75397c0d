package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forkd/forkd/api"
)

// DiffSnapshots tells what differs in the second snapshot. Each list has at
// most limit entries; 0 means the daemon's default.
func (c *Client) DiffSnapshots(ctx context.Context, before, after string, limit int) (api.SnapshotDiff, error) {
	path := snapshotPath(before, "/diff/"+url.PathEscape(after))
	if limit > 0 {
		path += "?limit=" + strconv.Itoa(limit)
	}
	var out api.SnapshotDiff
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}
