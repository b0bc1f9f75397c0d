package daemon

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type capacityRoutes struct{ engine routing.Part[roles.Hosts] }

func (s *capacityRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "capacity", Method: http.MethodGet, Path: "/v1/capacity", Tags: []string{"daemon"},
		Summary: "The host's resources for sandboxes, and the promised share",
	}, func(ctx context.Context, _ *routing.None) (*routing.Body[api.Capacity], error) {
		c, err := s.engine(ctx).Capacity()
		if err != nil {
			return nil, err
		}
		return routing.Answer(wireCapacity(c)), nil
	})
}

func wireCapacity(c sandbox.Capacity) api.Capacity {
	out := api.Capacity{Sandboxes: c.Sandboxes, Coming: c.Coming, Admits: api.Admits(c.Admits),
		Resources: []api.Resource{}, Pressure: []api.Pressure{}}
	for _, r := range c.Resources {
		out.Resources = append(out.Resources, api.Resource{Resource: r.Name, Total: r.Total, Free: r.Free,
			Reserve: r.Reserve, Promised: r.Promised, MayPromise: r.MayPromise})
	}
	for _, p := range c.Pressure {
		out.Pressure = append(out.Pressure, api.Pressure{Resource: p.Name, Some: p.Some, Fewer: p.Fewer, None: p.None})
	}
	return out
}
