package httpapi_test

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
)

const hugeLimits = `{"default":"public","limits":{"flows":65536,"flows_per_second":100000,"dns_per_second":100000}}`

// TestATenantsNetworkLimitsHaveACeiling requests the highest limits in every way that sets a
// policy.
func TestATenantsNetworkLimitsHaveACeiling(t *testing.T) {
	b := newTenants(t)
	operators := b.key(keys.Spec{Name: "o"})
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"open","image":"python-numpy","network":`+hugeLimits+`}`), 201)
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/open/public", `{"public":true}`), 200)
	for _, c := range []struct {
		who, key string
		want     api.NetworkLimits
		cuts     int
	}{
		{"a tenant's key", b.acme, api.NetworkLimits{Flows: 4096, FlowsPerSecond: 1024, DNSPerSecond: 400}, 3},
		{"the operator's key", operators, api.NetworkLimits{Flows: 65536, FlowsPerSecond: 100000, DNSPerSecond: 100000}, 0},
	} {
		t.Run(c.who, func(t *testing.T) {
			checkLimits := func(id, way string) {
				t.Helper()
				n := into[api.SandboxNetwork](t, b.do("GET", "/v1/sandboxes/"+id+"/network", ""), 200)
				if n.Effective.Limits == nil || *n.Effective.Limits != c.want || len(n.Cut) != c.cuts {
					t.Errorf("%s: %+v, cut %q", way, n.Effective.Limits, n.Cut)
				}
			}
			fork := func(body string) string {
				t.Helper()
				return into[[]api.SandboxInfo](t, b.as(c.key, "POST", "/v1/sandboxes", body), 201)[0].ID
			}
			checkLimits(fork(`{"snapshot_tag":"py","network":`+hugeLimits+`}`), "its own policy")
			checkLimits(fork(`{"snapshot_tag":"open"}`), "that of its snapshot")
			id := fork(`{"snapshot_tag":"py"}`)
			into[api.SandboxNetwork](t, b.as(c.key, "PUT", "/v1/sandboxes/"+id+"/network", `{"network":`+hugeLimits+`}`), 200)
			checkLimits(id, "another policy while it runs")
			r := into[api.BranchResult](t, b.as(c.key, "POST", "/v1/sandboxes/"+id+"/branch", `{"n":1,"network":`+hugeLimits+`}`), 201)
			checkLimits(r.Children[0].ID, "a child of a branch")
		})
	}
}

// TestATenantsCPUWeightHasACeiling tests the only limit that raises a sandbox's share of the host.
func TestATenantsCPUWeightHasACeiling(t *testing.T) {
	b := newTenants(t)
	for _, c := range []struct {
		key, weight string
		ok          bool
	}{{b.acme, "100", true}, {b.acme, "101", false}, {b.acme, "10000", false}, {b.key(keys.Spec{Name: "o"}), "10000", true}} {
		r := b.as(c.key, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","cpu_weight":`+c.weight+`}`)
		if !c.ok {
			wantError(t, r, api.CodeForbidden)
			continue
		}
		into[[]api.SandboxInfo](t, r, 201)
	}
}
