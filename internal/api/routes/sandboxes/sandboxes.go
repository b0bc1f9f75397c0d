package sandboxes

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/workspace"
)

// sandboxRoutes list and end sandboxes.
type sandboxRoutes struct {
	engine routing.Part[roles.Sandboxes]
	mover  *Mover
	book   *workspace.Book
}

func (s *sandboxRoutes) add(rt *routing.Router) {
	tags := []string{"sandboxes"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Tags: tags,
		Summary: "List the sandboxes", Errors: []int{400, 401},
	}, s.listSandboxes)
	routing.Route(rt, huma.Operation{
		OperationID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{id}", Tags: tags,
		Summary: "Describe a sandbox", Errors: []int{400, 401, 404},
	}, s.getSandbox)
	routing.Route(rt, huma.Operation{
		OperationID: "kill-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}", Tags: tags,
		Summary: "End a sandbox", DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404},
	}, s.killSandbox)
	routing.Route(rt, huma.Operation{
		OperationID: "sandbox-memory", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/memory", Tags: tags,
		Summary: "A sandbox's use of host memory", Errors: []int{400, 401, 404, 409, 502},
	}, s.sandboxMemory)
	s.addLife(rt)
	rt.RawRoute(huma.Operation{
		OperationID: "sandbox-console", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/console", Tags: tags,
		Summary: "The end of the guest's serial console",
		Parameters: []*huma.Param{
			{Name: "follow", In: "query", Description: "Follow new output until the sandbox ends",
				Schema: &huma.Schema{Type: "boolean"}},
			{Name: "tail", In: "query", Description: "Begin so many lines before the end; with follow only",
				Schema: &huma.Schema{Type: "integer"}},
			{Name: "timestamps", In: "query", Description: "Begin each line with its time and a space, or with - if that is not known", Schema: &huma.Schema{Type: "boolean"}},
			{Name: "since", In: "query", Description: "Leave out lines from before this time; those of an unknown time are sent", Schema: &huma.Schema{Type: "string", Format: "date-time"}},
		},
		Responses: map[string]*huma.Response{"200": routing.TextResponse("Console output", "text/plain")},
		Errors:    []int{400, 401, 404, 409, 502},
	}, s.console)
}

func (s *sandboxRoutes) listSandboxes(ctx context.Context,
	in *routing.FilterInput) (*routing.Body[[]api.SandboxInfo], error) {
	out, made := []api.SandboxInfo{}, map[string]time.Time{}
	for _, info := range s.engine(ctx).List() {
		out, made[info.ID] = append(out, wire.Sandbox(ctx, info)), info.CreatedAt
	}
	out, err := routing.Filtered(in, sandboxFilters, out, sandboxEntry(ctx, made))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, func(a, b api.SandboxInfo) int {
		return cmp.Or(cmp.Compare(a.CreatedAtUnix, b.CreatedAtUnix), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	return routing.Answer(out), nil
}

func (s *sandboxRoutes) getSandbox(ctx context.Context, in *routing.IDPath) (*routing.Body[api.SandboxInfo], error) {
	info, err := s.engine(ctx).Get(in.ID)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.SandboxWithToken(ctx, info)), nil
}

// killInput is the input of kill-sandbox.
type killInput struct {
	routing.IDPath
	Tree bool `query:"tree" doc:"And all of its tree of forks by guests, whichever of them is named: none of them can fork meanwhile"`
}

// killed is the answer to kill-sandbox.
type killed struct {
	Ended string `header:"Forkd-Ended" doc:"With tree: the ids of all sandboxes that were ended, with commas between them"`
}

func (s *sandboxRoutes) killSandbox(ctx context.Context, in *killInput) (*killed, error) {
	if in.Tree {
		ended, err := s.engine(ctx).KillTree(ctx, in.ID)
		return &killed{strings.Join(ended, ",")}, err
	}
	return &killed{}, s.engine(ctx).Kill(ctx, in.ID)
}

func (s *sandboxRoutes) sandboxMemory(ctx context.Context, in *routing.IDPath) (*routing.Body[api.MemoryUse], error) {
	use, err := s.engine(ctx).Memory(in.ID)
	if err != nil {
		return nil, err
	}
	return routing.Answer(api.MemoryUse(use)), nil
}
