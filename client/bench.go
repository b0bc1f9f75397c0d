package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Floor has the daemon make n VMs of a snapshot's size with bare ioctls and says how long that took.
func (c *Client) Floor(ctx context.Context, tag string, n int) (api.Floor, error) {
	var out api.Floor
	return out, c.call(ctx, http.MethodPost, snapshotPath(tag, "/floor"), api.FloorRequest{N: n}, &out)
}

// CopyFloor has the daemon copy so many bytes in memory and says how long that took.
func (c *Client) CopyFloor(ctx context.Context, bytes int64) (api.Floor, error) {
	var out api.Floor
	return out, c.call(ctx, http.MethodPost, "/v1/host/copy", api.CopyRequest{Bytes: bytes}, &out)
}

// Host describes the daemon's host.
func (c *Client) Host(ctx context.Context) (api.Host, error) {
	var out api.Host
	return out, c.call(ctx, http.MethodGet, "/v1/host", nil, &out)
}

// DiskFloor has the daemon write and read a file beside the sandboxes' disks.
func (c *Client) DiskFloor(ctx context.Context, req api.DiskRequest) (api.DiskFigures, error) {
	var out api.DiskFigures
	return out, c.call(ctx, http.MethodPost, "/v1/host/disk", req, &out)
}
