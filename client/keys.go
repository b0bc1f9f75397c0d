package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// authority holds the requests about keys, tenants and published snapshots. Client embeds it.
type authority struct{ conn *connection }

// CreateKey makes a key. Only this answer contains the key's text.
func (c authority) CreateKey(ctx context.Context, req api.CreateKeyRequest) (api.NewKey, error) {
	var k api.NewKey
	return k, c.conn.call(ctx, http.MethodPost, "/v1/keys", req, &k)
}

// ListKeys returns the keys, oldest first.
func (c authority) ListKeys(ctx context.Context) ([]api.Key, error) {
	var list []api.Key
	return list, c.conn.call(ctx, http.MethodGet, "/v1/keys", nil, &list)
}

// RevokeKey revokes a key permanently.
func (c authority) RevokeKey(ctx context.Context, id string) (api.Key, error) {
	var k api.Key
	return k, c.conn.call(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, &k)
}

// RotateKey gives a key a new text.
func (c authority) RotateKey(ctx context.Context, id string, req api.RotateKeyRequest) (api.NewKey, error) {
	var k api.NewKey
	return k, c.conn.call(ctx, http.MethodPost, "/v1/keys/"+url.PathEscape(id)+"/rotate", req, &k)
}

// Tenant returns the operator's settings for a tenant.
func (c authority) Tenant(ctx context.Context, name string) (api.Tenant, error) {
	var t api.Tenant
	return t, c.conn.call(ctx, http.MethodGet, "/v1/tenants/"+url.PathEscape(name), nil, &t)
}

// SetTenant changes the operator's settings for a tenant.
func (c authority) SetTenant(ctx context.Context, name string, req api.SetTenantRequest) (api.Tenant, error) {
	var t api.Tenant
	return t, c.conn.call(ctx, http.MethodPut, "/v1/tenants/"+url.PathEscape(name), req, &t)
}

// PublishSnapshot lets all tenants fork from a snapshot, or withdraws this permission.
func (c authority) PublishSnapshot(ctx context.Context, tag string, public bool) (api.SnapshotInfo, error) {
	var s api.SnapshotInfo
	path := "/v1/snapshots/" + url.PathEscape(tag) + "/public"
	return s, c.conn.call(ctx, http.MethodPut, path, api.PublishRequest{Public: public}, &s)
}
