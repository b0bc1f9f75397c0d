package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/sandbox"
)

// IDPath is the input of an operation on one sandbox.
type IDPath struct {
	ID string `path:"id" doc:"Name of the sandbox"`
}

type forkInput struct{ Body api.CreateSandboxesRequest }

// forkOutput has the names of package api's headers; a test compares them.
type forkOutput struct {
	PoolReady int   `header:"Forkd-Pool-Ready" doc:"Shells that stood ready when the request arrived"`
	ArmedWall int64 `header:"Forkd-Armed-Wall-Us" doc:"Microseconds to the last child restored at its gate"`
	ReadyWall int64 `header:"Forkd-Ready-Wall-Us" doc:"Microseconds to the last child's confirmed identity"`
	Body      []api.SandboxInfo
}

// sandboxRoutes fork, list and end sandboxes.
type sandboxRoutes struct {
	engine  Sandboxes
	metrics *metrics
}

func (s *sandboxRoutes) add(rt *router) {
	tags := []string{"sandboxes"}
	route(rt, huma.Operation{
		OperationID: "fork", Method: http.MethodPost, Path: "/v1/sandboxes", Tags: tags,
		Summary: "Fork n sandboxes from a snapshot",
		Description: "The answer has one entry per child asked for. A child that could not be made is an entry with status " +
			"failed, error and code; only if none could be made is the answer an error.",
		DefaultStatus: http.StatusCreated, Errors: []int{400, 401, 404, 409, 503, 507},
	}, s.fork)
	route(rt, huma.Operation{
		OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Tags: tags,
		Summary: "List the sandboxes",
	}, s.listSandboxes)
	route(rt, huma.Operation{
		OperationID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{id}", Tags: tags,
		Summary: "Describe a sandbox", Errors: []int{400, 401, 404},
	}, s.getSandbox)
	route(rt, huma.Operation{
		OperationID: "kill-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}", Tags: tags,
		Summary: "End a sandbox", DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404},
	}, s.killSandbox)
	route(rt, huma.Operation{
		OperationID: "sandbox-memory", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/memory", Tags: tags,
		Summary: "What a sandbox costs in host memory", Errors: []int{400, 401, 404, 502},
	}, s.sandboxMemory)
	rt.rawRoute(huma.Operation{
		OperationID: "sandbox-console", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/console", Tags: tags,
		Summary: "The last part of what the guest wrote to its serial console",
		Parameters: []*huma.Param{
			{Name: "follow", In: "query", Description: "Go on with what comes, until the sandbox has ended", Schema: &huma.Schema{Type: "boolean"}},
			{Name: "tail", In: "query", Description: "Begin so many lines before the end; with follow only", Schema: &huma.Schema{Type: "integer"}},
		},
		Responses: map[string]*huma.Response{"200": textResponse("Console output", "text/plain")},
	}, s.console)
}

func (s *sandboxRoutes) fork(ctx context.Context, in *forkInput) (*forkOutput, error) {
	req := sandbox.ForkRequest{Tag: in.Body.SnapshotTag, N: 1, Env: in.Body.Env, GuestFork: in.Body.GuestFork}
	if in.Body.N != nil {
		req.N = *in.Body.N
	}
	if in.Body.MemoryLimitMiB != nil {
		req.MemoryLimitMiB = *in.Body.MemoryLimitMiB
	}
	note(ctx).snapshot, note(ctx).count = req.Tag, req.N
	res, err := s.engine.Fork(ctx, req)
	if err != nil {
		return nil, err
	}
	s.metrics.forked(res)
	if err := allFailed(res); err != nil {
		return nil, err
	}
	out := &forkOutput{
		PoolReady: res.PoolReady,
		ArmedWall: res.ArmedWall.Microseconds(), ReadyWall: res.ReadyWall.Microseconds(),
		Body: make([]api.SandboxInfo, 0, len(res.Children)),
	}
	for _, child := range res.Children {
		out.Body = append(out.Body, wireChild(child, req))
	}
	slices.SortFunc(out.Body, func(a, b api.SandboxInfo) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}

// allFailed is the first child's error if no child was made.
func allFailed(res sandbox.ForkResult) error {
	var first error
	for _, child := range res.Children {
		if child.Err == nil {
			return nil
		}
		if first == nil {
			first = child.Err
		}
	}
	return first
}

func (s *sandboxRoutes) listSandboxes(context.Context, *none) (*body[[]api.SandboxInfo], error) {
	out := []api.SandboxInfo{}
	for _, info := range s.engine.List() {
		out = append(out, wireSandbox(info))
	}
	slices.SortStableFunc(out, func(a, b api.SandboxInfo) int {
		return cmp.Or(cmp.Compare(a.CreatedAtUnix, b.CreatedAtUnix), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	return &body[[]api.SandboxInfo]{out}, nil
}

func (s *sandboxRoutes) getSandbox(_ context.Context, in *IDPath) (*body[api.SandboxInfo], error) {
	info, err := s.engine.Get(in.ID)
	if err != nil {
		return nil, err
	}
	return &body[api.SandboxInfo]{wireSandbox(info)}, nil
}

func (s *sandboxRoutes) killSandbox(ctx context.Context, in *IDPath) (*struct{}, error) {
	return nil, s.engine.Kill(ctx, in.ID)
}

func (s *sandboxRoutes) sandboxMemory(_ context.Context, in *IDPath) (*body[api.MemoryUse], error) {
	use, err := s.engine.Memory(in.ID)
	if err != nil {
		return nil, err
	}
	return &body[api.MemoryUse]{api.MemoryUse(use)}, nil
}
