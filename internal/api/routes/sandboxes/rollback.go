package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
)

type rollbackInput struct {
	routing.IDPath
	Body api.RollbackRequest
}

func (s *branchRoutes) addRollback(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "rollback", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/rollback", Tags: []string{"sandboxes"},
		Summary: "Put a running sandbox back to a snapshot of its own ancestry",
		Description: "The sandbox keeps its ID, addresses and identity. Its processes end. After an error it keeps " +
			"running. 409: the snapshot is not in its ancestry; details.tags has the valid ones.",
		Errors: []int{400, 401, 404, 409, 502, 503, 504, 507},
	}, s.rollback)
}

func (s *branchRoutes) rollback(ctx context.Context, in *rollbackInput) (*routing.Body[api.SandboxInfo], error) {
	requestinfo.From(ctx).Snapshot = in.Body.SnapshotTag
	info, err := s.engine(ctx).Rollback(ctx, in.ID, in.Body.SnapshotTag)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Sandbox(ctx, info)), nil
}
