package tenants

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/tenancy"
)

// TenantPath is the input of an operation on one tenant.
type TenantPath struct {
	Tenant string `path:"tenant" doc:"Name of the tenant"`
}

type setTenantInput struct {
	TenantPath
	Body api.SetTenantRequest
}

// tenantRoutes show and set the operator's settings for a tenant. Tenants are not registered: every
// name a key could have is valid.
type tenantRoutes struct{ weights *tenancy.Weights }

func (s *tenantRoutes) add(rt *routing.Router) {
	tags := []string{"keys"}
	routing.Route(rt, huma.Operation{
		OperationID: "tenant", Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Tags: tags,
		Summary: "The operator's settings of a tenant", Errors: []int{400, 401, 403},
	}, s.get)
	routing.Route(rt, huma.Operation{
		OperationID: "set-tenant", Method: http.MethodPut, Path: "/v1/tenants/{tenant}", Tags: tags,
		Summary: "Set a tenant's share of CPU time", Errors: []int{400, 401, 403, 501},
	}, s.set)
}

func (s *tenantRoutes) get(_ context.Context, in *TenantPath) (*routing.Body[api.Tenant], error) {
	weight, err := s.weights.Of(in.Tenant)
	if err != nil {
		return nil, err
	}
	return routing.Answer(api.Tenant{Name: in.Tenant, CPUWeight: weight}), nil
}

func (s *tenantRoutes) set(ctx context.Context, in *setTenantInput) (*routing.Body[api.Tenant], error) {
	if err := s.weights.Set(in.Tenant, in.Body.CPUWeight); err != nil {
		return nil, err
	}
	return s.get(ctx, &in.TenantPath)
}
