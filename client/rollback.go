package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Rollback puts a running sandbox back to a snapshot of its own ancestry. What runs
// in it ends; after an error it runs on as it was.
func (c *Client) Rollback(ctx context.Context, id, tag string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/rollback"), api.RollbackRequest{SnapshotTag: tag}, &out)
}
