package snapshots

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type setPoolInput struct {
	routing.TagPath
	Body api.SetPoolRequest
}

type poolRoutes struct{ engine routing.Part[roles.Pools] }

func (s *poolRoutes) add(rt *routing.Router) {
	tags := []string{"pools"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-pools", Method: http.MethodGet, Path: "/v1/pools", Tags: tags,
		Summary: "List the pools of shells",
	}, func(ctx context.Context, _ *routing.None) (*routing.Body[[]api.Pool], error) {
		return routing.Answer(wirePools(s.engine(ctx).Pools())), nil
	})
	routing.Route(rt, huma.Operation{
		OperationID: "set-pool", Method: http.MethodPut, Path: "/v1/snapshots/{tag}/pool", Tags: tags,
		Summary:       "Set how many shells to keep ready for a snapshot; they are made in the background",
		DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404},
	}, func(ctx context.Context, in *setPoolInput) (*struct{}, error) {
		return nil, s.engine(ctx).SetPool(ctx, in.Tag, in.Body.Size)
	})
}

func wirePools(pools []sandbox.PoolStatus) []api.Pool {
	out := []api.Pool{}
	for _, p := range pools {
		out = append(out, api.Pool{
			Tag: p.Tag, MemoryMiB: p.Shape.MemoryMiB, VCPUs: p.Shape.VCPUs, Disks: p.Shape.Disks,
			Size: p.Wanted, Ready: p.Ready,
		})
	}
	slices.SortFunc(out, func(a, b api.Pool) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}
