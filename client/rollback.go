package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Rollback puts a running sandbox back to a snapshot of its own ancestry. Its running programs end.
// If Rollback returns an error, the sandbox keeps running unchanged.
func (c *Client) Rollback(ctx context.Context, id, tag string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/rollback"), api.RollbackRequest{SnapshotTag: tag}, &out)
}
