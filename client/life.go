package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Pause makes a sandbox a snapshot under its own id, without process and memory, until
// Resume. After an error it runs on as it was.
func (c *Client) Pause(ctx context.Context, id string, req api.PauseRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/pause"), req, &out)
}

// Resume lets a paused sandbox go on. One that runs is returned as it is.
func (c *Client) Resume(ctx context.Context, id string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/resume"), nil, &out)
}

// SetLife changes for how long a sandbox may run, and what becomes of it then.
func (c *Client) SetLife(ctx context.Context, id string, req api.LifeRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodPatch, sandboxPath(id, "/life"), req, &out)
}
