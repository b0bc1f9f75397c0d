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

// promoteInput has an optional body.
type promoteInput struct {
	routing.IDPath
	Body *api.PromoteRequest
}

func (s *branchRoutes) addPromote(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "promote", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/promote", Tags: []string{"sandboxes"},
		Summary: "Put a sandbox in the place of one that it descends from",
		Description: "The other sandbox keeps its id, addresses, identity and settings, and has this one's memory, " +
			"processes and files; this one's id then names no sandbox. After an error both are as before. " +
			"409: it does not descend from that one, that one has ended or is paused, or another promotion of them runs.",
		Errors: []int{400, 401, 404, 409, 502, 503, 504, 507},
	}, s.promote)
}

func (s *branchRoutes) promote(ctx context.Context, in *promoteInput) (*routing.Body[api.PromoteResult], error) {
	req := sandbox.PromoteRequest{Child: in.ID}
	if b := in.Body; b != nil {
		req.Place, req.Tag, req.Discard = b.Place, b.Tag, b.Parent == api.PromoteKill
		if req.Discard && req.Tag != "" {
			return nil, apierror.New(api.CodeInvalid, "", "tag and parent kill exclude each other: no snapshot is made")
		}
	}
	res, err := s.engine(ctx).Promote(ctx, req)
	if err != nil {
		return nil, err
	}
	n := requestinfo.From(ctx)
	n.Snapshot, n.Object, n.Text = res.KeptIn, res.Info.ID, "in its place"
	return routing.Answer(api.PromoteResult{
		Sandbox: wire.Sandbox(ctx, res.Info), PromotedFrom: res.Was, KeptIn: res.KeptIn}), nil
}
