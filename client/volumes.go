package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// Volumes holds the requests about volumes.
type Volumes struct{ conn *connection }

// Volumes returns the caller's volumes.
func (c authority) Volumes() Volumes { return Volumes(c) }

func volumePath(name string) string { return "/v1/volumes/" + url.PathEscape(name) }

// List returns the volumes by name.
func (v Volumes) List(ctx context.Context) ([]api.Volume, error) {
	var list []api.Volume
	return list, v.conn.call(ctx, http.MethodGet, "/v1/volumes", nil, &list)
}

// Get describes a volume.
func (v Volumes) Get(ctx context.Context, name string) (api.Volume, error) {
	var out api.Volume
	return out, v.conn.call(ctx, http.MethodGet, volumePath(name), nil, &out)
}

// Create makes a volume.
func (v Volumes) Create(ctx context.Context, req api.CreateVolumeRequest) (api.Volume, error) {
	var out api.Volume
	return out, v.conn.call(ctx, http.MethodPost, "/v1/volumes", req, &out)
}

// Snapshot keeps the present content of a volume as another one, which cannot be written.
func (v Volumes) Snapshot(ctx context.Context, name, snapshot string) (api.Volume, error) {
	var out api.Volume
	req := api.SnapshotVolumeRequest{Name: snapshot}
	return out, v.conn.call(ctx, http.MethodPost, volumePath(name)+"/snapshot", req, &out)
}

// Remove removes a volume that no sandbox has.
func (v Volumes) Remove(ctx context.Context, name string) error {
	return v.conn.call(ctx, http.MethodDelete, volumePath(name), nil, nil)
}
