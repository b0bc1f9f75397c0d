package keys

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
)

// Tests all combinations of scopes, tenant, expiry and each quota: narrower, equal, wider and unlimited.
func TestAKeyGrantsNoMoreThanItHas(t *testing.T) {
	end := time.Unix(5000, 0)
	own := Key{Tenant: "acme", Scopes: principal.Admin | principal.Read, Expires: end, Quotas: Quotas{10, 10, 10, 10, 10}}
	type choice[T any] struct {
		value T
		ok    bool
	}
	scopes := []choice[principal.Scopes]{{principal.Read, true}, {own.Scopes, true}, {principal.All, false},
		{principal.Fork, false}}
	tenants := []choice[string]{{"acme", true}, {"evil", false}, {"", false}}
	ends := []choice[time.Time]{{end.Add(-1), true}, {end, true}, {end.Add(1), false}, {time.Time{}, false}}
	amounts := []choice[int]{{1, true}, {10, true}, {11, false}, {0, false}}
	for _, s := range scopes {
		for _, tenant := range tenants {
			for _, e := range ends {
				for field := range reflect.TypeFor[Quotas]().NumField() {
					for _, n := range amounts {
						q := own.Quotas
						reflect.ValueOf(&q).Elem().Field(field).SetInt(int64(n.value))
						err := own.CheckGrant(Spec{Tenant: tenant.value, Scopes: s.value, Expires: e.value, Quotas: q})
						want := s.ok && tenant.ok && e.ok && n.ok
						if got := err == nil; got != want {
							t.Fatal(fmt.Sprint(s, tenant, e, field, n, err))
						}
						if d := (*Denial)(nil); err != nil && !errors.As(err, &d) {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
}
