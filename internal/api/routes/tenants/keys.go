package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// KeyPath is the input of an operation on one key.
type KeyPath struct {
	Key string `path:"key" doc:"Id of the key"`
}

type createKeyInput struct{ Body api.CreateKeyRequest }

// rotateKeyInput has an optional body.
type rotateKeyInput struct {
	KeyPath
	Body *api.RotateKeyRequest
}

// keyRoutes make, list and revoke keys. A tenant's key with the scope admin manages its tenant's
// keys. It cannot grant a right it does not have.
type keyRoutes struct {
	keys *keys.Store // if nil, there are no keys
	now  func() time.Time
}

func (s *keyRoutes) add(rt *routing.Router) {
	tags := []string{"keys"}
	routing.Route(rt, huma.Operation{
		OperationID: "create-key", Method: http.MethodPost, Path: "/v1/keys", Tags: tags,
		Summary:       "Make a key; its text is in this answer only",
		DefaultStatus: http.StatusCreated, Errors: []int{400, 401, 403, 409, 501},
	}, s.create)
	routing.Route(rt, huma.Operation{
		OperationID: "list-keys", Method: http.MethodGet, Path: "/v1/keys", Tags: tags,
		Summary:     "List the keys, without their texts",
		Description: "Revoked and expired keys are listed for 90 days.",
		Errors:      []int{401, 403},
	}, s.list)
	routing.Route(rt, huma.Operation{
		OperationID: "revoke-key", Method: http.MethodDelete, Path: "/v1/keys/{key}", Tags: tags,
		Summary: "End a key for good", Errors: []int{400, 401, 403, 404},
	}, s.revoke)
	routing.Route(rt, huma.Operation{
		OperationID: "rotate-key", Method: http.MethodPost, Path: "/v1/keys/{key}/rotate", Tags: tags,
		Summary: "Give a key another text; it is in this answer only", Errors: []int{400, 401, 403, 404},
	}, s.rotate)
}

func (s *keyRoutes) create(ctx context.Context, in *createKeyInput) (*routing.Body[api.NewKey], error) {
	if s.keys == nil {
		return nil, noKeys()
	}
	scopes, err := principal.ParseScopes(in.Body.Scopes)
	if err != nil {
		return nil, apierror.New(api.CodeInvalid, "", "scopes: %v", err)
	}
	spec := keys.Spec{Name: in.Body.Name, Tenant: in.Body.Tenant, Scopes: scopes, Quotas: keys.Quotas(in.Body.Quotas),
		HostPorts: in.Body.HostPorts}
	if in.Body.ExpiresSecs > 0 {
		spec.Expires = s.now().Add(time.Duration(in.Body.ExpiresSecs) * time.Second)
	}
	if spec, err = s.within(principal.From(ctx), spec); err != nil {
		return nil, err
	}
	k, text, err := s.keys.Create(spec)
	if err != nil {
		return nil, keyFailure(err)
	}
	noteKey(ctx, k)
	return routing.Answer(api.NewKey{Key: s.wire(k), Text: text}), nil
}

// noteKey records a key, its tenant and its scopes in the audit log.
func noteKey(ctx context.Context, k keys.Key) {
	n := requestinfo.From(ctx)
	n.Object = k.ID
	n.Text = fmt.Sprintf("name %s, tenant %s, scopes %s", k.Name, cmp.Or(k.Tenant, "(the operator)"),
		strings.Join(k.Scopes.List(), ","))
}

// maxTenantKeys is the largest number of keys a tenant may make itself.
const maxTenantKeys = 100

// within limits a key made with another key. A tenant's key makes only keys of its tenant, with its
// own quotas. The new key has no additional scope, and does not live longer.
func (s *keyRoutes) within(who principal.Principal, spec keys.Spec) (keys.Spec, error) {
	if who.KeyID == "" {
		return spec, nil
	}
	own, err := s.keys.Get(who.KeyID)
	if err != nil {
		return spec, keyFailure(err)
	}
	if spec.Tenant == "" {
		spec.Tenant = own.Tenant
	}
	if !who.Operator() && spec.Quotas != (keys.Quotas{}) && spec.Quotas != own.Quotas {
		return spec, apierror.New(api.CodeForbidden, api.ReasonOperatorOnly,
			"a tenant's key makes keys with its own quotas: leave them out")
	}
	if spec.Tenant == own.Tenant && spec.Quotas == (keys.Quotas{}) {
		spec.Quotas = own.Quotas
	}
	if !own.Expires.IsZero() && (spec.Expires.IsZero() || spec.Expires.After(own.Expires)) {
		spec.Expires = own.Expires
	}
	if err := own.CheckGrant(spec); err != nil {
		return spec, keyFailure(err)
	}
	if who.Operator() {
		return spec, nil
	}
	n := 0
	for _, k := range s.keys.List() {
		if k.Tenant == who.Tenant && k.Dead(s.now()) == "" {
			n++
		}
	}
	if n >= maxTenantKeys {
		return spec, apierror.New(api.CodeConflict, "",
			"the tenant has %d keys, the most its own keys can make: revoke some", n)
	}
	return spec, nil
}

func (s *keyRoutes) list(ctx context.Context, _ *routing.None) (*routing.Body[[]api.Key], error) {
	out := []api.Key{}
	if s.keys == nil {
		return routing.Answer(out), nil
	}
	for _, k := range s.keys.List() {
		if principal.From(ctx).Sees(k.Tenant) {
			out = append(out, s.wire(k))
		}
	}
	return routing.Answer(out), nil
}

func (s *keyRoutes) revoke(ctx context.Context, in *KeyPath) (*routing.Body[api.Key], error) {
	if _, err := KeyOf(s.keys, principal.From(ctx), in.Key); err != nil {
		return nil, err
	}
	k, err := s.keys.Revoke(in.Key)
	if err != nil {
		return nil, keyFailure(err)
	}
	noteKey(ctx, k)
	return routing.Answer(s.wire(k)), nil
}

func (s *keyRoutes) rotate(ctx context.Context, in *rotateKeyInput) (*routing.Body[api.NewKey], error) {
	who := principal.From(ctx)
	k, err := KeyOf(s.keys, who, in.Key)
	if err != nil {
		return nil, err
	}
	if who.KeyID != "" { // the caller would hold the new text
		own, err := s.keys.Get(who.KeyID)
		if err == nil {
			err = own.CheckGrant(k.Spec())
		}
		if err != nil {
			return nil, keyFailure(err)
		}
	}
	var grace time.Duration
	if in.Body != nil {
		grace = time.Duration(in.Body.GraceSecs) * time.Second
	}
	k, text, err := s.keys.Rotate(in.Key, grace)
	if err != nil {
		return nil, keyFailure(err)
	}
	noteKey(ctx, k)
	return routing.Answer(api.NewKey{Key: s.wire(k), Text: text}), nil
}

// KeyOf returns a key if it is visible to the caller.
func KeyOf(store *keys.Store, who principal.Principal, id string) (keys.Key, error) {
	missing := apierror.New(api.CodeNotFound, "", "key %s not found", id)
	if store == nil {
		return keys.Key{}, missing
	}
	k, err := store.Get(id)
	if err != nil || !who.Sees(k.Tenant) {
		return keys.Key{}, missing
	}
	return k, nil
}

func noKeys() *apierror.Error {
	return apierror.New(api.CodeUnsupported, "", "this daemon keeps no keys")
}

// keyFailure converts an error of package keys.
func keyFailure(err error) error {
	denial := (*keys.Denial)(nil)
	switch {
	case errors.As(err, &denial) && denial.Scope:
		return apierror.New(api.CodeForbidden, api.ReasonScopeMissing, "%v", err)
	case errors.As(err, &denial):
		return apierror.New(api.CodeForbidden, api.ReasonOperatorOnly, "%v", err)
	case errors.Is(err, keys.ErrInvalid):
		return apierror.New(api.CodeInvalid, "", "%v", err)
	case errors.Is(err, keys.ErrNotFound):
		return apierror.New(api.CodeNotFound, "", "%v", err)
	case errors.Is(err, keys.ErrTaken):
		return apierror.New(api.CodeConflict, "", "%v", err)
	}
	return err
}

func (s *keyRoutes) wire(k keys.Key) api.Key {
	stamp := func(t time.Time) *int64 {
		if t.IsZero() {
			return nil
		}
		return wire.Optional(t.Unix())
	}
	status := k.Dead(s.now())
	if status == "" {
		status = "active"
	}
	return api.Key{ID: k.ID, Name: k.Name, Tenant: k.Tenant, Scopes: k.Scopes.List(), Quotas: api.KeyQuotas(k.Quotas),
		Status: status, CreatedUnix: k.Created.Unix(), ExpiresUnix: stamp(k.Expires), LastUsedUnix: stamp(k.LastUsed),
		RevokedUnix: stamp(k.Revoked), HostPorts: k.HostPorts}
}
