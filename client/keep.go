package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Keep scores sandboxes, keeps the best and ends the rest. The daemon runs req.Args in each sandbox,
// or reads req.File, and takes the number in the first line. It ends none before all have been
// scored, and none without a score unless req.EndUnscored is set. With req.DryRun it ends none. Keep
// returns an error if a sandbox does not exist or the request is invalid; then none was ended. If no
// sandbox has a score, it returns the result without an error, and none was ended.
func Keep(ctx context.Context, c *Client, req api.KeepRequest) (api.KeepResult, error) {
	var out api.KeepResult
	return out, c.call(ctx, http.MethodPost, "/v1/sandboxes/keep", req, &out)
}
