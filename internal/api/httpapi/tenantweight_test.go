package httpapi_test

import (
	"testing"

	"github.com/forkd/forkd/api"
)

// Only the operator can set and see a tenant's weight, which the engine receives.
func TestATenantsWeightIsTheOperators(t *testing.T) {
	b := newTenants(t)
	const path = "/v1/tenants/acme"
	if got := into[api.Tenant](t, b.do("GET", path, ""), 200); got != (api.Tenant{Name: "acme", CPUWeight: 100}) {
		t.Errorf("at first: %+v", got)
	}
	for _, method := range []string{"GET", "PUT"} {
		if e := wantError(t, b.as(b.acme, method, path, `{"cpu_weight":200}`), api.CodeForbidden); e.Reason != api.ReasonOperatorOnly {
			t.Errorf("%s by the tenant: %+v", method, e)
		}
	}
	for _, weight := range []string{"0", "10001", "-1"} {
		wantError(t, b.do("PUT", path, `{"cpu_weight":`+weight+`}`), api.CodeInvalid)
	}
	for _, name := range []string{"A", "a-b", "a.b", "aaaaaaaaaaaaaaaaaaaaaaaaa"} {
		wantError(t, b.do("PUT", "/v1/tenants/"+name, `{"cpu_weight":200}`), api.CodeInvalid)
		wantError(t, b.do("GET", "/v1/tenants/"+name, ""), api.CodeInvalid)
	}
	if len(b.weights) > 0 {
		t.Errorf("the engine was told %v", b.weights)
	}
	set := into[api.Tenant](t, b.do("PUT", path, `{"cpu_weight":200}`), 200)
	got := into[api.Tenant](t, b.do("GET", path, ""), 200)
	if want := (api.Tenant{Name: "acme", CPUWeight: 200}); set != want || got != want || b.weights["acme"] != 200 {
		t.Errorf("set: %+v, then %+v, and the engine has %v", set, got, b.weights)
	}
}
