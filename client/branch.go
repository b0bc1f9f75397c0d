package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Branch makes a snapshot of a sandbox, which keeps running. With N it also forks children of the
// new snapshot. A failed child is an entry of Children with Error set. Failed children are not an
// error of the branch, even if all of them failed.
func (c *Client) Branch(ctx context.Context, id string, req api.BranchRequest) (api.BranchResult, error) {
	var out api.BranchResult
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/branch"), req, &out)
}
