package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// LabelSandbox changes the labels of a sandbox. Labels that req does not name stay.
func LabelSandbox(ctx context.Context, c *Client, id string, req api.LabelsRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPatch, sandboxPath(id, "/labels"), req, &out)
}

// LabelSnapshot changes the labels of a snapshot. Labels that req does not name stay.
func LabelSnapshot(ctx context.Context, c *Client, tag string, req api.LabelsRequest) (api.SnapshotInfo, error) {
	var out api.SnapshotInfo
	return out, c.call(ctx, http.MethodPatch, snapshotPath(tag, "/labels"), req, &out)
}

// listPath returns the path of a list with filters.
func listPath(path string, filters []string) string {
	q := url.Values{}
	if len(filters) > 0 {
		q["filter"] = filters
	}
	return withQuery(path, q)
}
