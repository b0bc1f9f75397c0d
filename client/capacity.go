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

// Drain makes the daemon take no new sandboxes. The mode decides about the running ones. A second
// call changes the mode.
func (h *hosts) Drain(ctx context.Context, req api.DrainRequest) (api.Drain, error) {
	var out api.Drain
	return out, h.conn.call(ctx, http.MethodPost, "/v1/drain", req, &out)
}

// CancelDrain ends a drain. Paused sandboxes stay paused.
func (h *hosts) CancelDrain(ctx context.Context) (api.Drain, error) {
	var out api.Drain
	return out, h.conn.call(ctx, http.MethodDelete, "/v1/drain", nil, &out)
}

// DrainStatus returns the progress of a drain.
func (h *hosts) DrainStatus(ctx context.Context) (api.Drain, error) {
	var out api.Drain
	return out, h.conn.call(ctx, http.MethodGet, "/v1/drain", nil, &out)
}

// Ready returns nil if the daemon can start VMs, otherwise the reason why it cannot. It needs no
// token.
func (h *hosts) Ready(ctx context.Context) error {
	return h.conn.call(ctx, http.MethodGet, "/readyz", nil, &api.Readiness{})
}
