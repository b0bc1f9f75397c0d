package client

import (
	"context"
	"net/http"

	"github.com/forkd/forkd/api"
)

// Life holds the requests about the lifetime of sandboxes.
type Life struct {
	// Client sends the requests.
	Client *Client
}

// Pause turns a sandbox into a snapshot under its own ID. It has no process and uses no memory
// until Resume. If Pause returns an error, the sandbox keeps running.
func (l Life) Pause(ctx context.Context, id string, req api.PauseRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPost, sandboxPath(id, "/pause"), req, &out)
}

// Resume gives a paused sandbox a VM again. It returns a running sandbox unchanged.
func (l Life) Resume(ctx context.Context, id string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPost, sandboxPath(id, "/resume"), nil, &out)
}

// ResumeFrom is like Resume for a sandbox that may be paused at another daemon: the first of peers that has it. The
// operator of the daemon allows peers.
func (l Life) ResumeFrom(ctx context.Context, id string, peers []string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPost, sandboxPath(id, "/resume"), api.ResumeRequest{Peers: peers}, &out)
}

// SetLife changes the lifetime of a sandbox and the action at its end.
func (l Life) SetLife(ctx context.Context, id string, req api.LifeRequest) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, l.Client.call(ctx, http.MethodPatch, sandboxPath(id, "/life"), req, &out)
}
