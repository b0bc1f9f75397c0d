package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forkd/forkd/api"
)

// DiffSnapshots returns the differences of snapshot after from snapshot before. Each list has at
// most limit entries. If limit is 0, the daemon's default applies.
func (c *Client) DiffSnapshots(ctx context.Context, before, after string, limit int) (api.SnapshotDiff, error) {
	path := snapshotPath(before, "/diff/"+url.PathEscape(after))
	if limit > 0 {
		path += "?limit=" + strconv.Itoa(limit)
	}
	var out api.SnapshotDiff
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}
