package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Node returns the daemon's node in a cluster: its identity, capacity, pools and snapshots. Only the operator may ask.
func Node(ctx context.Context, c *Client) (api.Node, error) {
	var out api.Node
	return out, c.call(ctx, http.MethodGet, "/v1/node", nil, &out)
}
