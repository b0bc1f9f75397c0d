package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// Workspaces holds the requests about workspaces: sandboxes under a lasting name.
type Workspaces struct {
	// Client sends the requests.
	Client *Client
}

// Create forks a sandbox and gives it a name. A taken name is an error with api.CodeConflict.
func (w Workspaces) Create(ctx context.Context, req api.CreateWorkspaceRequest) (api.WorkspaceInfo, error) {
	var out api.WorkspaceInfo
	return out, w.Client.call(ctx, http.MethodPost, "/v1/workspaces", req, &out)
}

// List returns all workspaces.
func (w Workspaces) List(ctx context.Context) ([]api.WorkspaceInfo, error) {
	var out []api.WorkspaceInfo
	return out, w.Client.call(ctx, http.MethodGet, "/v1/workspaces", nil, &out)
}

// Get returns the description of one workspace.
func (w Workspaces) Get(ctx context.Context, name string) (api.WorkspaceInfo, error) {
	var out api.WorkspaceInfo
	return out, w.Client.call(ctx, http.MethodGet, workspacePath(name, ""), nil, &out)
}

// Suspend pauses the sandbox of a workspace.
func (w Workspaces) Suspend(ctx context.Context, name string) (api.WorkspaceInfo, error) {
	var out api.WorkspaceInfo
	return out, w.Client.call(ctx, http.MethodPost, workspacePath(name, "/suspend"), nil, &out)
}

// Resume resumes the sandbox of a suspended workspace. If the sandbox has ended, the workspace gets
// a new one.
func (w Workspaces) Resume(ctx context.Context, name string) (api.WorkspaceInfo, error) {
	var out api.WorkspaceInfo
	return out, w.Client.call(ctx, http.MethodPost, workspacePath(name, "/resume"), nil, &out)
}

// Delete ends a workspace and its sandbox.
func (w Workspaces) Delete(ctx context.Context, name string) error {
	return w.Client.call(ctx, http.MethodDelete, workspacePath(name, ""), nil, nil)
}

func workspacePath(name, rest string) string { return "/v1/workspaces/" + url.PathEscape(name) + rest }
