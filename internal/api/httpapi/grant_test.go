package httpapi_test

import (
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
)

// A key rotates only keys it could have made itself, because its owner gets the new text.
func TestRotatingGivesNoMoreThanCreating(t *testing.T) {
	b := newTenants(t)
	end := time.Now().Add(time.Hour)
	weak := keys.Spec{Name: "weak", Tenant: "acme", Expires: end, Quotas: keys.Quotas{Sandboxes: 1}}
	text := b.key(weak)
	for name, c := range map[string]struct {
		spec keys.Spec
		want int
	}{
		"no later, no wider": {keys.Spec{Expires: end, Quotas: keys.Quotas{Sandboxes: 1}}, 200},
		"endless":            {keys.Spec{Quotas: keys.Quotas{Sandboxes: 1}}, 403},
		"later":              {keys.Spec{Expires: end.Add(time.Hour), Quotas: keys.Quotas{Sandboxes: 1}}, 403},
		"wider":              {keys.Spec{Expires: end, Quotas: keys.Quotas{Sandboxes: 500}}, 403},
		"unbounded":          {keys.Spec{Expires: end}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Name, c.spec.Tenant, c.spec.Scopes = "target", "acme", 0
			b.key(c.spec)
			all := b.keys.List()
			id := all[0].ID
			for _, k := range all {
				if k.Name == "target" && k.Revoked.IsZero() {
					id = k.ID
				}
			}
			w := b.as(text, "POST", "/v1/keys/"+id+"/rotate", "")
			if w.Code != c.want {
				t.Errorf("got %d, want %d: %s", w.Code, c.want, w.Body)
			}
			into[api.Key](t, b.do("DELETE", "/v1/keys/"+id, ""), 200)
		})
	}
}
