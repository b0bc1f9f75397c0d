package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// forkGroupInput has an optional body.
type forkGroupInput struct {
	routing.PrivateNetworkPath
	Body *api.ForkGroupRequest
}

func (s *branchRoutes) addForkGroup(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "fork-private-network", Method: http.MethodPost, Path: "/v1/networks/{network}/fork",
		Tags: []string{"networks"}, Summary: "Copy all running sandboxes of a private network as they are at one instant",
		Description: "Each copy has a private network of its own, with the same addresses and aliases. Connections " +
			"between members continue in each copy. A copy is made as a whole or not at all: a failed one has error " +
			"and code. 409: no member runs, or a member could not be captured; 429: the copies exceed a quota.",
		DefaultStatus: http.StatusCreated, Errors: []int{400, 401, 403, 404, 409, 429, 502, 503, 504, 507},
	}, s.forkGroup)
}

func (s *branchRoutes) forkGroup(ctx context.Context, in *forkGroupInput) (*routing.Body[api.ForkGroupResult], error) {
	req := sandbox.GroupForkRequest{Network: in.Network, N: 1}
	if b := in.Body; b != nil {
		if req.Prefix = b.Prefix; b.N != nil {
			req.N = *b.N
		}
	}
	requestinfo.From(ctx).Object, requestinfo.From(ctx).Count = in.Network, req.N
	res, err := s.engine(ctx).ForkGroup(ctx, req)
	if err != nil {
		return nil, err
	}
	out := api.ForkGroupResult{Copies: []api.GroupCopy{}, PauseMS: wire.Milliseconds(res.Pause),
		TotalMS: wire.Milliseconds(res.Total)}
	for _, c := range res.Copies {
		out.Copies = append(out.Copies, wireGroupCopy(ctx, c))
	}
	return routing.Answer(out), nil
}

func wireGroupCopy(ctx context.Context, c sandbox.GroupCopy) api.GroupCopy {
	out := api.GroupCopy{Network: c.Network, Sandboxes: []api.SandboxInfo{}}
	if c.Err != nil {
		f := apierror.From(c.Err)
		out.Error, out.Code = f.Message, f.Code
	}
	for _, i := range c.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, wire.SandboxWithToken(ctx, i))
	}
	return out
}
