package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// hosts is what a Client can ask of the daemon's host.
type hosts struct{ conn *connection }

// Capacity is what the daemon's host has for sandboxes, and what of it is promised.
func (h *hosts) Capacity(ctx context.Context) (api.Capacity, error) {
	var out api.Capacity
	return out, h.conn.call(ctx, http.MethodGet, "/v1/capacity", nil, &out)
}
