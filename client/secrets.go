package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// Secrets holds the requests about secrets. No answer contains a value.
type Secrets struct {
	conn *connection
	// Tenant is the owner of the secrets; empty for the caller. Only the operator can name another.
	Tenant string
}

// Secrets returns the caller's secrets.
func (c authority) Secrets() Secrets { return Secrets{conn: c.conn} }

func (s Secrets) path(name string) string {
	path := "/v1/secrets"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	if s.Tenant != "" {
		path += "?" + url.Values{"tenant": {s.Tenant}}.Encode()
	}
	return path
}

// List returns the secrets by name.
func (s Secrets) List(ctx context.Context) ([]api.Secret, error) {
	var list []api.Secret
	return list, s.conn.call(ctx, http.MethodGet, s.path(""), nil, &list)
}

// Get describes a secret.
func (s Secrets) Get(ctx context.Context, name string) (api.Secret, error) {
	var out api.Secret
	return out, s.conn.call(ctx, http.MethodGet, s.path(name), nil, &out)
}

// Set makes a secret, or rotates it to a new value.
func (s Secrets) Set(ctx context.Context, name string, req api.SetSecretRequest) (api.Secret, error) {
	var out api.Secret
	return out, s.conn.call(ctx, http.MethodPut, s.path(name), req, &out)
}

// Remove removes a secret.
func (s Secrets) Remove(ctx context.Context, name string) error {
	return s.conn.call(ctx, http.MethodDelete, s.path(name), nil, nil)
}
