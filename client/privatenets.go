package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// PrivateNetworks holds the requests about private networks.
type PrivateNetworks struct{ conn *connection }

// PrivateNetworks returns the caller's private networks.
func (c authority) PrivateNetworks() PrivateNetworks { return PrivateNetworks(c) }

func privateNetPath(name string) string { return "/v1/networks/" + url.PathEscape(name) }

// List returns the networks by name.
func (p PrivateNetworks) List(ctx context.Context) ([]api.PrivateNetwork, error) {
	var list []api.PrivateNetwork
	return list, p.conn.call(ctx, http.MethodGet, "/v1/networks", nil, &list)
}

// Get describes a network and its members.
func (p PrivateNetworks) Get(ctx context.Context, name string) (api.PrivateNetwork, error) {
	var out api.PrivateNetwork
	return out, p.conn.call(ctx, http.MethodGet, privateNetPath(name), nil, &out)
}

// Create makes a network.
func (p PrivateNetworks) Create(ctx context.Context, name string) (api.PrivateNetwork, error) {
	var out api.PrivateNetwork
	req := api.CreatePrivateNetworkRequest{Name: name}
	return out, p.conn.call(ctx, http.MethodPost, "/v1/networks", req, &out)
}

// Remove removes a network without members.
func (p PrivateNetworks) Remove(ctx context.Context, name string) error {
	return p.conn.call(ctx, http.MethodDelete, privateNetPath(name), nil, nil)
}

// Fork copies the running sandboxes of a network as they are at one instant. Each copy has a network of its own. An
// error means that no copy was made; a copy that failed beside others has its own error.
func (p PrivateNetworks) Fork(
	ctx context.Context, name string, req api.ForkGroupRequest,
) (api.ForkGroupResult, error) {
	var out api.ForkGroupResult
	return out, p.conn.call(ctx, http.MethodPost, privateNetPath(name)+"/fork", req, &out)
}
