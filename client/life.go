package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Life is what is asked about the life of sandboxes.
type Life struct{ Client *Client }

// Pause makes a sandbox a snapshot under its own id, without process and memory, until
// Resume. After an error it runs on as it was.
func (l Life) Pause(ctx context.Context, id string, req api.PauseRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPost, sandboxPath(id, "/pause"), req, &out)
}

// Resume lets a paused sandbox go on. One that runs is returned as it is.
func (l Life) Resume(ctx context.Context, id string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPost, sandboxPath(id, "/resume"), nil, &out)
}

// SetLife changes for how long a sandbox may run, and what becomes of it then.
func (l Life) SetLife(ctx context.Context, id string, req api.LifeRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPatch, sandboxPath(id, "/life"), req, &out)
}
