package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// hosts holds the requests about the daemon's host. Client embeds it.
type hosts struct{ conn *connection }

// Capacity returns the resources the daemon's host has for sandboxes, and the promised part of
// them.
func (h *hosts) Capacity(ctx context.Context) (api.Capacity, error) {
	var out api.Capacity
	return out, h.conn.call(ctx, http.MethodGet, "/v1/capacity", nil, &out)
}

// Ready returns nil if the daemon can start VMs, otherwise the reason why it cannot. It needs no
// token.
func (h *hosts) Ready(ctx context.Context) error {
	return h.conn.call(ctx, http.MethodGet, "/readyz", nil, &api.Readiness{})
}
