package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Merge merges the files that req.Theirs has changed into a running sandbox. The result lists the
// changes and the conflicts. If a conflict is left, or req.DryRun is set, its Applied is false, and
// no file was changed. A merge is not atomic: an error may come after a part of the changes, and its
// text says so.
func Merge(ctx context.Context, c *Client, id string, req api.MergeRequest) (api.MergeResult, error) {
	var out api.MergeResult
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/merge"), req, &out)
}
