package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type publishInput struct {
	routing.TagPath
	Body api.PublishRequest
}

// publishRoutes let the operator share snapshots with all tenants.
type publishRoutes struct {
	publish func(ctx context.Context, tag string, public bool) (sandbox.SnapshotInfo, error)
}

func (s *publishRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "publish-snapshot", Method: http.MethodPut, Path: "/v1/snapshots/{tag}/public",
		Tags: []string{"snapshots"}, Summary: "Let all tenants fork from a snapshot, or no longer",
		Errors: []int{400, 401, 403, 404, 409},
	}, func(ctx context.Context, in *publishInput) (*routing.Body[api.SnapshotInfo], error) {
		info, err := s.publish(ctx, in.Tag, in.Body.Public)
		if err != nil {
			return nil, err
		}
		return routing.Answer(wire.Snapshot(info)), nil
	})
}
