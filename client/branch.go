package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Branch makes a snapshot of a sandbox, which goes on, and with N forks
// children of it. Those that could not be made are entries of Children with
// Error set; they are no error of the branch, even if they are all.
func (c *Client) Branch(ctx context.Context, id string, req api.BranchRequest) (api.BranchResult, error) {
	var out api.BranchResult
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/branch"), req, &out)
}
