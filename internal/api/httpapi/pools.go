package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/roles"
)

type setPoolInput struct {
	TagPath
	Body api.SetPoolRequest
}

type poolRoutes struct{ engine shown[roles.Pools] }

func (s *poolRoutes) add(rt *router) {
	tags := []string{"pools"}
	route(rt, huma.Operation{
		OperationID: "list-pools", Method: http.MethodGet, Path: "/v1/pools", Tags: tags,
		Summary: "List the pools of shells",
	}, func(ctx context.Context, _ *none) (*body[[]api.Pool], error) {
		return &body[[]api.Pool]{wirePools(s.engine(ctx).Pools())}, nil
	})
	route(rt, huma.Operation{
		OperationID: "set-pool", Method: http.MethodPut, Path: "/v1/snapshots/{tag}/pool", Tags: tags,
		Summary:       "Set how many shells to keep ready for a snapshot; they are made in the background",
		DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404},
	}, func(ctx context.Context, in *setPoolInput) (*struct{}, error) {
		return nil, s.engine(ctx).SetPool(ctx, in.Tag, in.Body.Size)
	})
}
