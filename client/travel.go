package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/forkd/forkd/api"
)

// ExportSnapshot returns a snapshot as an OCI layout in a tar. The caller closes the stream.
func (c *Client) ExportSnapshot(ctx context.Context, tag string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, snapshotPath(tag, "/export"), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ImportSnapshot makes a snapshot from a stream (docs/inside/formats/hub.md).
func (c *Client) ImportSnapshot(ctx context.Context, tag string, tar io.Reader) (api.SnapshotInfo, error) {
	resp, err := c.send(ctx, http.MethodPut, snapshotPath(tag, ""), tar, http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	defer resp.Body.Close()
	var out api.SnapshotInfo
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return api.SnapshotInfo{}, fmt.Errorf("decode the daemon's answer about snapshot %s: %w", tag, err)
	}
	return out, nil
}

// CheckSnapshot reports whether the daemon can run the snapshot of a stream. It needs the stream up to the VM's
// state only.
func (c *Client) CheckSnapshot(ctx context.Context, tag string, tar io.Reader) error {
	resp, err := c.send(ctx, http.MethodPut, snapshotPath(tag, "?check=true"), tar,
		http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
