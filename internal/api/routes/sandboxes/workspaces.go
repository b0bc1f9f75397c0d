package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/workspace"
)

// WorkspacePath is the input of an operation on one workspace.
type WorkspacePath struct {
	Workspace string `path:"workspace" doc:"Name of the workspace"`
}

type createWorkspaceInput struct{ Body api.CreateWorkspaceRequest }

// suspendInput has an optional body.
type suspendInput struct {
	WorkspacePath
	Body *api.SuspendWorkspaceRequest `required:"false"`
}

// workspaceRoutes are the original's workspaces (docs/use/original.md).
type workspaceRoutes struct {
	engine routing.Part[roles.Sandboxes]
	book   *workspace.Book
}

func (s *workspaceRoutes) add(rt *routing.Router) {
	tags := []string{"workspaces"}
	routing.Route(rt, huma.Operation{
		OperationID: "create-workspace", Method: http.MethodPost, Path: "/v1/workspaces", Tags: tags,
		Summary: "Fork a sandbox and give it a name", DefaultStatus: http.StatusCreated,
		Errors: []int{400, 401, 403, 404, 409, 501, 503, 507},
	}, s.create)
	routing.Route(rt, huma.Operation{
		OperationID: "list-workspaces", Method: http.MethodGet, Path: "/v1/workspaces", Tags: tags,
		Summary: "List the workspaces", Errors: []int{401, 403},
	}, s.list)
	routing.Route(rt, huma.Operation{
		OperationID: "get-workspace", Method: http.MethodGet, Path: "/v1/workspaces/{workspace}", Tags: tags,
		Summary: "Describe a workspace", Errors: []int{400, 401, 403, 404},
	}, s.get)
	routing.Route(rt, huma.Operation{
		OperationID: "delete-workspace", Method: http.MethodDelete, Path: "/v1/workspaces/{workspace}", Tags: tags,
		Summary: "End a workspace and its sandbox", DefaultStatus: http.StatusNoContent,
		Errors: []int{400, 401, 403, 404, 409},
	}, s.delete)
	routing.Route(rt, huma.Operation{
		OperationID: "suspend-workspace", Method: http.MethodPost, Path: "/v1/workspaces/{workspace}/suspend", Tags: tags,
		Summary: "Pause a workspace's sandbox", Errors: []int{400, 401, 403, 404, 409, 502, 503, 507},
	}, s.suspend)
	routing.Route(rt, huma.Operation{
		OperationID: "resume-workspace", Method: http.MethodPost, Path: "/v1/workspaces/{workspace}/resume", Tags: tags,
		Summary: "Resume a suspended workspace, or give a stale one a new sandbox",
		Errors:  []int{400, 401, 403, 404, 409, 502, 503, 507},
	}, s.resume)
}

func (s *workspaceRoutes) create(ctx context.Context,
	in *createWorkspaceInput) (*routing.Body[api.WorkspaceInfo], error) {
	requestinfo.From(ctx).Snapshot = in.Body.SnapshotTag
	req := sandbox.ForkRequest{Tag: in.Body.SnapshotTag, PrivatePorts: portsOf(ctx, nil)}
	if in.Body.MemoryLimitMiB != nil {
		req.Limits.MemoryMiB = *in.Body.MemoryLimitMiB
	}
	return s.told(ctx)(s.book.Create(ctx, s.engine(ctx), in.Body.Name, req))
}

func (s *workspaceRoutes) list(ctx context.Context, _ *routing.None) (*routing.Body[[]api.WorkspaceInfo], error) {
	out := []api.WorkspaceInfo{}
	for _, w := range s.book.List(ctx, s.engine(ctx)) {
		out = append(out, wireWorkspace(w))
	}
	return routing.Answer(out), nil
}

func (s *workspaceRoutes) get(ctx context.Context, in *WorkspacePath) (*routing.Body[api.WorkspaceInfo], error) {
	return s.told(ctx)(s.book.Get(ctx, s.engine(ctx), in.Workspace))
}

func (s *workspaceRoutes) delete(ctx context.Context, in *WorkspacePath) (*struct{}, error) {
	return nil, s.book.Delete(ctx, s.engine(ctx), in.Workspace)
}

func (s *workspaceRoutes) suspend(ctx context.Context, in *suspendInput) (*routing.Body[api.WorkspaceInfo], error) {
	return s.told(ctx)(s.book.Suspend(ctx, s.engine(ctx), in.Workspace))
}

func (s *workspaceRoutes) resume(ctx context.Context, in *WorkspacePath) (*routing.Body[api.WorkspaceInfo], error) {
	return s.told(ctx)(s.book.Resume(ctx, s.engine(ctx), in.Workspace))
}

// told answers with a workspace, and records its sandbox in the audit log.
func (s *workspaceRoutes) told(ctx context.Context) func(workspace.Workspace, error) (
	*routing.Body[api.WorkspaceInfo], error) {
	return func(w workspace.Workspace, err error) (*routing.Body[api.WorkspaceInfo], error) {
		if err != nil {
			return nil, err
		}
		requestinfo.From(ctx).Sandbox = w.Sandbox
		return routing.Answer(wireWorkspace(w)), nil
	}
}

func wireWorkspace(w workspace.Workspace) api.WorkspaceInfo {
	return api.WorkspaceInfo{
		ID: w.ID, Name: w.Name, Owner: w.Owner, SourceSnapshotTag: w.Source, CurrentStateTag: w.State,
		Status: api.WorkspaceStatus(w.Status), LiveSandboxID: w.Sandbox,
		CreatedAtUnix: w.Created.Unix(), LastActiveUnix: w.Active.Unix(),
	}
}
