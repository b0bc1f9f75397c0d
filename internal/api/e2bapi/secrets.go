package e2bapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/page"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/secrets"
)

// secretRoutes serve E2B's secrets over the store of the native API. No answer contains a value.
type secretRoutes struct{ h *Handler }

// secretInfo describes a secret to clients.
type secretInfo struct {
	ID        string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int               `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

func shownSecret(s secrets.Secret) secretInfo {
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	return secretInfo{s.ID, s.Name, s.Version, s.Metadata, s.Created.UTC(), s.Updated.UTC()}
}

// secretRequest is the body of a creation or change. A nil value keeps the current one.
type secretRequest struct {
	Name     string            `json:"name"`
	Value    *string           `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

func secretError(err error) error {
	switch {
	case errors.Is(err, secrets.ErrNoKey):
		return failf(http.StatusNotImplemented, "%v", err)
	case errors.Is(err, secrets.ErrInvalid):
		return invalidf("%v", err)
	case errors.Is(err, secrets.ErrNotFound):
		return failf(http.StatusNotFound, "%v", err)
	case errors.Is(err, secrets.ErrExists), errors.Is(err, secrets.ErrFull), errors.Is(err, secrets.ErrUnreadable):
		return failf(http.StatusConflict, "%v", err)
	}
	return err
}

// create is POST /secrets.
func (sr secretRoutes) create(c call) (answer, error) {
	var req secretRequest
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Value == nil {
		return answer{}, invalidf("value is missing")
	}
	made, err := sr.h.opt.Secrets.Set(secrets.Change{Tenant: c.who.Tenant, Name: req.Name, Value: []byte(*req.Value),
		Metadata: req.Metadata, New: true})
	if err != nil {
		return answer{}, secretError(err)
	}
	return answer{http.StatusCreated, shownSecret(made)}, nil
}

// list is GET /secrets.
func (sr secretRoutes) list(c call) (answer, error) {
	q := c.URL.Query()
	limit, err := page.Limit(q.Get("limit"))
	if err != nil {
		return answer{}, invalidf("limit: %v", err)
	}
	all, err := sr.h.opt.Secrets.List(c.who.Tenant)
	if err != nil {
		return answer{}, secretError(err)
	}
	key := func(s secrets.Secret) page.Key { return page.Key{At: s.Created, ID: cmp.Or(s.ID, s.Name)} }
	slices.SortFunc(all, func(a, b secrets.Secret) int { return -key(a).Compare(key(b)) })
	some, next, err := page.Of(all, q.Get("nextToken"), limit, key, false)
	if err != nil {
		return answer{}, invalidf("nextToken: %v", err)
	}
	if next != "" {
		c.w.Header().Set(headerNext, next)
	}
	out := make([]secretInfo, 0, len(some))
	for _, s := range some {
		out = append(out, shownSecret(s))
	}
	return answer{http.StatusOK, out}, nil
}

// find returns the secret in a path, given by name or ID.
func (sr secretRoutes) find(c call) (secrets.Secret, error) {
	name := c.PathValue("secret")
	all, err := sr.h.opt.Secrets.List(c.who.Tenant)
	if err != nil {
		return secrets.Secret{}, secretError(err)
	}
	for _, is := range []func(secrets.Secret) bool{
		func(s secrets.Secret) bool { return s.Name == name },
		func(s secrets.Secret) bool { return s.ID == name },
	} {
		if at := slices.IndexFunc(all, is); at >= 0 {
			return all[at], nil
		}
	}
	return secrets.Secret{}, failf(http.StatusNotFound, "secret %q not found", sandbox.Clip(name))
}

// get is GET /secrets/{idOrName}.
func (sr secretRoutes) get(c call) (answer, error) {
	s, err := sr.find(c)
	return answer{http.StatusOK, shownSecret(s)}, err
}

// change is POST /secrets/{idOrName}: a new value, other metadata, or both.
func (sr secretRoutes) change(c call) (answer, error) {
	var req secretRequest
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	s, err := sr.find(c)
	if err != nil {
		return answer{}, err
	}
	set := secrets.Change{Tenant: c.who.Tenant, Name: s.Name, Metadata: req.Metadata, Keep: req.Value == nil}
	if req.Value != nil {
		set.Value = []byte(*req.Value)
	}
	if s, err = sr.h.opt.Secrets.Set(set); err != nil {
		return answer{}, secretError(err)
	}
	return answer{http.StatusOK, shownSecret(s)}, nil
}

// remove is DELETE /secrets/{idOrName}.
func (sr secretRoutes) remove(c call) (answer, error) {
	s, err := sr.find(c)
	if err != nil {
		return answer{}, err
	}
	if _, err := sr.h.opt.Secrets.Remove(c.who.Tenant, s.Name); err != nil {
		return answer{}, secretError(err)
	}
	return answer{http.StatusNoContent, nil}, nil
}
