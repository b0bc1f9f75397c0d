package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Promote puts a sandbox in the place of one that it descends from. That one keeps its id, addresses,
// identity and settings, and has the promoted sandbox's memory, processes and files. The promoted
// sandbox's id then names none. A snapshot keeps the old state, unless req.Parent is
// api.PromoteKill. If Promote returns an error, both sandboxes are as before.
func Promote(ctx context.Context, c *Client, id string, req api.PromoteRequest) (api.PromoteResult, error) {
	var out api.PromoteResult
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/promote"), req, &out)
}
