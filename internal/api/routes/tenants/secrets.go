package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/secrets"
)

// OfTenant lets the operator act for a tenant.
type OfTenant struct {
	Tenant string `query:"tenant" doc:"Tenant of the secret; absent: the caller's. Only the operator can name another" maxLength:"24"`
}

// owner returns the owner of the secrets that a request is about.
func (in OfTenant) owner(who principal.Principal) (string, error) {
	switch {
	case in.Tenant != "" && !keys.IsTenant(in.Tenant):
		return "", apierror.New(api.CodeInvalid, "", "tenant %.40q: want 1 to 24 small letters, digits or _", in.Tenant)
	case in.Tenant == "" || in.Tenant == who.Tenant:
		return who.Tenant, nil
	case !who.Operator():
		return "", apierror.New(api.CodeForbidden, api.ReasonOperatorOnly,
			"only the operator can name another tenant's secrets")
	}
	return in.Tenant, nil
}

// SecretPath is the input of an operation on one secret.
type SecretPath struct {
	Secret string `path:"secret" doc:"Name of the secret"`
	OfTenant
}

type setSecretInput struct {
	SecretPath
	Body api.SetSecretRequest
}

// secretRoutes set, list and remove secrets. No answer, error or audit line contains a value.
type secretRoutes struct{ store *secrets.Store }

func (s *secretRoutes) add(rt *routing.Router) {
	tags := []string{"secrets"}
	routing.Route(rt, huma.Operation{
		OperationID: "list-secrets", Method: http.MethodGet, Path: "/v1/secrets", Tags: tags,
		Summary: "List the secrets, without their values", Errors: []int{400, 401, 403, 501},
	}, s.list)
	routing.Route(rt, huma.Operation{
		OperationID: "get-secret", Method: http.MethodGet, Path: "/v1/secrets/{secret}", Tags: tags,
		Summary: "Describe a secret, without its value", Errors: []int{400, 401, 403, 404, 501},
	}, s.get)
	routing.Route(rt, huma.Operation{
		OperationID: "set-secret", Method: http.MethodPut, Path: "/v1/secrets/{secret}", Tags: tags,
		Summary: "Make a secret, or rotate it to a new value",
		Description: "Network policies that refer to the secret use the new value at once. Sandboxes that have it in " +
			"their environment get it when they are next resumed or rolled back.",
		Errors: []int{400, 401, 403, 409, 501, 507},
	}, s.set)
	routing.Route(rt, huma.Operation{
		OperationID: "remove-secret", Method: http.MethodDelete, Path: "/v1/secrets/{secret}", Tags: tags,
		Summary: "Remove a secret", DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 403, 404, 501},
	}, s.remove)
}

func (s *secretRoutes) list(ctx context.Context, in *OfTenant) (*routing.Body[[]api.Secret], error) {
	owner, err := in.owner(principal.From(ctx))
	if err != nil {
		return nil, err
	}
	list, err := s.store.List(owner)
	if err != nil {
		return nil, secretFailure("", err)
	}
	out := []api.Secret{}
	for _, found := range list {
		out = append(out, wireSecret(found))
	}
	return routing.Answer(out), nil
}

func (s *secretRoutes) get(ctx context.Context, in *SecretPath) (*routing.Body[api.Secret], error) {
	found, err := secretOf(s.store, principal.From(ctx), in.Tenant, in.Secret)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireSecret(found)), nil
}

// secretOf returns a secret if it is visible to the caller. The answers about an absent secret and another tenant's
// are equal, as each tenant has names of its own.
func secretOf(store *secrets.Store, who principal.Principal, tenant, name string) (secrets.Secret, error) {
	owner, err := OfTenant{tenant}.owner(who)
	if err != nil {
		return secrets.Secret{}, err
	}
	found, err := store.Get(owner, name)
	if err != nil {
		return secrets.Secret{}, secretFailure(name, err)
	}
	return found, nil
}

func (s *secretRoutes) set(ctx context.Context, in *setSecretInput) (*routing.Body[api.Secret], error) {
	owner, err := in.owner(principal.From(ctx))
	if err != nil {
		return nil, err
	}
	requestinfo.From(ctx).Object = in.Secret
	set, err := s.store.Set(secrets.Change{Tenant: owner, Name: in.Secret, Value: []byte(in.Body.Value),
		Metadata: in.Body.Metadata})
	if err != nil {
		return nil, secretFailure(in.Secret, err)
	}
	requestinfo.From(ctx).Text = aboutSecret(set)
	return routing.Answer(wireSecret(set)), nil
}

func (s *secretRoutes) remove(ctx context.Context, in *SecretPath) (*routing.None, error) {
	owner, err := in.owner(principal.From(ctx))
	if err != nil {
		return nil, err
	}
	requestinfo.From(ctx).Object = in.Secret
	was, err := s.store.Remove(owner, in.Secret)
	if err != nil {
		return nil, secretFailure(in.Secret, err)
	}
	requestinfo.From(ctx).Text = aboutSecret(was)
	return nil, nil
}

// aboutSecret describes a secret for the audit log.
func aboutSecret(s secrets.Secret) string {
	text := fmt.Sprintf("id %s, version %d", s.ID, s.Version)
	if s.Tenant != "" {
		text += ", tenant " + s.Tenant
	}
	return text
}

// secretFailure converts an error of package secrets.
func secretFailure(name string, err error) error {
	f := (*apierror.Error)(nil)
	switch {
	case errors.Is(err, secrets.ErrNoKey):
		return apierror.New(api.CodeUnsupported, api.ReasonSecretsOff, "%v", err)
	case errors.Is(err, secrets.ErrInvalid):
		return apierror.New(api.CodeInvalid, "", "%v", err)
	case errors.Is(err, secrets.ErrNotFound):
		f = apierror.New(api.CodeNotFound, api.ReasonSecretNotFound, "%v", err)
	case errors.Is(err, secrets.ErrUnreadable):
		f = apierror.New(api.CodeConflict, api.ReasonSecretUnreadable, "%v", err)
	case errors.Is(err, secrets.ErrFull), errors.Is(err, secrets.ErrExists):
		return apierror.New(api.CodeConflict, "", "%v", err)
	default:
		return err
	}
	f.Details = map[string]string{"secret": name}
	return f
}

func wireSecret(s secrets.Secret) api.Secret {
	return api.Secret{ID: s.ID, Name: s.Name, Tenant: s.Tenant, Version: s.Version, Metadata: s.Metadata,
		CreatedUnix: unixOr0(s.Created), UpdatedUnix: unixOr0(s.Updated), Damage: s.Damage}
}

// unixOr0 returns seconds since 1970, or 0 for a time that is unknown.
func unixOr0(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
