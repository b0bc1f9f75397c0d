package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/forkd/forkd/api"
)

// travels sends and receives snapshots.
type travels struct{ conn *connection }

// ExportSnapshot returns a snapshot as an OCI layout in a tar. The caller closes the stream.
func (t travels) ExportSnapshot(ctx context.Context, tag string) (io.ReadCloser, error) {
	resp, err := t.conn.send(ctx, http.MethodGet, snapshotPath(tag, "/export"), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ImportSnapshot makes a snapshot from a stream (docs/inside/formats/hub.md).
func (t travels) ImportSnapshot(ctx context.Context, tag string, stream io.Reader) (api.SnapshotInfo, error) {
	resp, err := t.conn.send(ctx, http.MethodPut, snapshotPath(tag, ""), stream,
		http.Header{"Content-Type": {"application/x-tar"}})
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
func (t travels) CheckSnapshot(ctx context.Context, tag string, stream io.Reader) error {
	resp, err := t.conn.send(ctx, http.MethodPut, snapshotPath(tag, "?check=true"), stream,
		http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// CopySnapshot lets the daemon copy a snapshot from another daemon: the first of peers that has it. The operator of the
// daemon allows peers.
func (t travels) CopySnapshot(ctx context.Context, tag string, peers []string) (api.SnapshotInfo, error) {
	var out api.SnapshotInfo
	return out, t.conn.call(ctx, http.MethodPost, snapshotPath(tag, "/copy"), api.CopySnapshotRequest{Peers: peers}, &out)
}
