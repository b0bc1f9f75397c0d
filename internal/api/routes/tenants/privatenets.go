package tenants

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

type createPrivateNetworkInput struct {
	Body api.CreatePrivateNetworkRequest
}

// privateNetRoutes make, list and remove private networks. A caller sees only its own.
type privateNetRoutes struct{ all *privatenets.Store }

func (p *privateNetRoutes) add(rt *routing.Router) {
	tags := []string{"networks"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-private-networks", Method: http.MethodGet, Path: "/v1/networks", Tags: tags,
		Summary: "List the caller's private networks", Errors: []int{401, 403},
	}, p.list)
	routing.Route(rt, huma.Operation{
		OperationID: "get-private-network", Method: http.MethodGet, Path: "/v1/networks/{network}", Tags: tags,
		Summary: "Describe a private network and its members", Errors: []int{400, 401, 403, 404},
	}, p.get)
	routing.Route(rt, huma.Operation{
		OperationID: "create-private-network", Method: http.MethodPost, Path: "/v1/networks", Tags: tags,
		Summary:     "Make a private network",
		Description: "Sandboxes join it when they are forked. Its members can connect to each other by name.",
		Errors:      []int{400, 401, 403, 409, 429, 507}, DefaultStatus: http.StatusCreated,
	}, p.create)
	routing.Route(rt, huma.Operation{
		OperationID: "remove-private-network", Method: http.MethodDelete, Path: "/v1/networks/{network}", Tags: tags,
		Summary: "Remove a private network without members", DefaultStatus: http.StatusNoContent,
		Errors: []int{400, 401, 403, 404, 409, 507},
	}, p.remove)
}

// errNoNetworks is the error of a daemon without private networks.
var errNoNetworks = sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has no private networks")

func (p *privateNetRoutes) list(ctx context.Context, _ *struct{}) (*routing.Body[[]api.PrivateNetwork], error) {
	out := []api.PrivateNetwork{}
	if p.all == nil {
		return routing.Answer(out), nil
	}
	for _, n := range p.all.List(principal.From(ctx).Tenant) {
		out = append(out, wirePrivateNet(n))
	}
	return routing.Answer(out), nil
}

func (p *privateNetRoutes) get(ctx context.Context,
	in *routing.PrivateNetworkPath) (*routing.Body[api.PrivateNetwork], error) {
	if p.all == nil {
		return nil, errNoNetworks
	}
	return answerPrivateNet(p.all.Get(principal.From(ctx).Tenant, in.Network))
}

func (p *privateNetRoutes) create(
	ctx context.Context, in *createPrivateNetworkInput,
) (*routing.Body[api.PrivateNetwork], error) {
	requestinfo.From(ctx).Object = in.Body.Name
	if p.all == nil {
		return nil, errNoNetworks
	}
	return answerPrivateNet(p.all.Create(principal.From(ctx).Tenant, in.Body.Name))
}

func (p *privateNetRoutes) remove(ctx context.Context, in *routing.PrivateNetworkPath) (*routing.None, error) {
	requestinfo.From(ctx).Object = in.Network
	if p.all == nil {
		return nil, errNoNetworks
	}
	return nil, p.all.Remove(principal.From(ctx).Tenant, in.Network)
}

func answerPrivateNet(n privatenets.Network, err error) (*routing.Body[api.PrivateNetwork], error) {
	if err != nil {
		return nil, err
	}
	return routing.Answer(wirePrivateNet(n)), nil
}

func wirePrivateNet(n privatenets.Network) api.PrivateNetwork {
	out := api.PrivateNetwork{ID: n.ID, Name: n.Name, Tenant: n.Owner, CreatedUnix: unixOr0(n.Created),
		Members: []api.PrivateNetworkMember{}}
	for _, m := range n.Members {
		out.Members = append(out.Members, api.PrivateNetworkMember{Sandbox: m.Sandbox, Alias: m.Alias,
			Name: m.Alias + "." + netpolicy.Zone, Addr: m.Addr.String()})
	}
	return out
}
