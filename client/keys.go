package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
)

// authority are the requests about keys, and about what tenants share; a Client has them.
type authority struct{ conn *connection }

// CreateKey makes a key. Its text is in the answer, and nowhere else.
func (c authority) CreateKey(ctx context.Context, req api.CreateKeyRequest) (api.NewKey, error) {
	var k api.NewKey
	return k, c.conn.call(ctx, http.MethodPost, "/v1/keys", req, &k)
}

// ListKeys returns the keys, the oldest first.
func (c authority) ListKeys(ctx context.Context) ([]api.Key, error) {
	var list []api.Key
	return list, c.conn.call(ctx, http.MethodGet, "/v1/keys", nil, &list)
}

// RevokeKey ends a key for good.
func (c authority) RevokeKey(ctx context.Context, id string) (api.Key, error) {
	var k api.Key
	return k, c.conn.call(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, &k)
}

// RotateKey gives a key another text.
func (c authority) RotateKey(ctx context.Context, id string, req api.RotateKeyRequest) (api.NewKey, error) {
	var k api.NewKey
	return k, c.conn.call(ctx, http.MethodPost, "/v1/keys/"+url.PathEscape(id)+"/rotate", req, &k)
}

// Tenant returns what the operator has set for a tenant.
func (c authority) Tenant(ctx context.Context, name string) (api.Tenant, error) {
	var t api.Tenant
	return t, c.conn.call(ctx, http.MethodGet, "/v1/tenants/"+url.PathEscape(name), nil, &t)
}

// SetTenant sets it.
func (c authority) SetTenant(ctx context.Context, name string, req api.SetTenantRequest) (api.Tenant, error) {
	var t api.Tenant
	return t, c.conn.call(ctx, http.MethodPut, "/v1/tenants/"+url.PathEscape(name), req, &t)
}

// PublishSnapshot lets all tenants fork from a snapshot, or no longer.
func (c authority) PublishSnapshot(ctx context.Context, tag string, public bool) (api.SnapshotInfo, error) {
	var s api.SnapshotInfo
	path := "/v1/snapshots/" + url.PathEscape(tag) + "/public"
	return s, c.conn.call(ctx, http.MethodPut, path, api.PublishRequest{Public: public}, &s)
}
