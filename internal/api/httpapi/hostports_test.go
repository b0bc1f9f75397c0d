package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

const hostRules = `{"allow":["host.forkd.internal:8080","host.forkd.internal:9000-9100","pypi.org:443"]}`

// allowed returns the effective rules of a sandbox, as the operator sees them.
func (b *tenants) allowed(id string) string {
	b.t.Helper()
	n := into[api.SandboxNetwork](b.t, b.do("GET", "/v1/sandboxes/"+id+"/network", ""), 200)
	return strings.Join(n.Effective.Allow, " ")
}

// TestKeysReachOnlyGrantedPortsOfTheHost requests ports of the host in every way that sets a
// policy: for a new sandbox, for a running one, by its snapshot, and by a branch.
func TestKeysReachOnlyGrantedPortsOfTheHost(t *testing.T) {
	b := newTenants(t)
	granted := b.key(keys.Spec{Name: "g", Tenant: "acme", HostPorts: []string{"8080", "9050-9060"}})
	operators := b.key(keys.Spec{Name: "o"})
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots",
		`{"tag":"open","image":"python-numpy","network":`+hostRules+`}`), 201)
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/open/public", `{"public":true}`), 200)
	for _, c := range []struct{ who, key, want string }{
		{"a tenant's key", b.acme, "pypi.org:443"},
		{"the operator's key", operators, "pypi.org:443"},
		{"a key with a grant", granted, "host.forkd.internal:8080 host.forkd.internal:9050-9060 pypi.org:443"},
	} {
		t.Run(c.who, func(t *testing.T) {
			fork := func(body string) api.SandboxInfo {
				t.Helper()
				return into[[]api.SandboxInfo](t, b.as(c.key, "POST", "/v1/sandboxes", body), 201)[0]
			}
			own := fork(`{"snapshot_tag":"py","network":` + hostRules + `}`)
			if got := b.allowed(own.ID); got != c.want {
				t.Errorf("its own policy: %q", got)
			}
			if cut := own.Network.Cut; len(cut) == 0 || !strings.Contains(cut[0], "host.forkd.internal") {
				t.Errorf("the answer does not say what was cut: %q", cut)
			}
			inherited := fork(`{"snapshot_tag":"open"}`)
			if got := b.allowed(inherited.ID); got != c.want {
				t.Errorf("that of its snapshot: %q", got)
			}
			changed := fork(`{"snapshot_tag":"py"}`)
			into[api.SandboxNetwork](t, b.as(c.key, "PUT", "/v1/sandboxes/"+changed.ID+"/network", `{"network":`+hostRules+`}`), 200)
			if got := b.allowed(changed.ID); got != c.want {
				t.Errorf("another policy while it runs: %q", got)
			}
			r := into[api.BranchResult](t, b.as(c.key, "POST", "/v1/sandboxes/"+changed.ID+"/branch", `{"n":1,"network":`+hostRules+`}`), 201)
			if got := b.allowed(r.Children[0].ID); got != c.want {
				t.Errorf("a child of a branch: %q", got)
			}
		})
	}
	operator := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"open"}`), 201)[0]
	if got := b.allowed(operator.ID); strings.Count(got, "host.forkd.internal") != 2 || len(operator.Network.Cut) != 0 {
		t.Errorf("the operator: %q, cut %q", got, operator.Network.Cut)
	}
}

// TestAKeyGrantsNoPortOfTheHostThatItLacks makes and rotates keys with keys.
func TestAKeyGrantsNoPortOfTheHostThatItLacks(t *testing.T) {
	b := newTenants(t)
	some := b.key(keys.Spec{Name: "some", Tenant: "acme", HostPorts: []string{"8000-8100"}})
	admin := b.key(keys.Spec{Name: "admin"})
	body := func(ports string) string {
		return fmt.Sprintf(`{"name":"n%s","scopes":["read"],"host_ports":[%q]}`, strings.ReplaceAll(ports, "/", "_"), ports)
	}
	for _, text := range []string{b.acme, some, admin} {
		for _, ports := range []string{"22", "8000-8101", "1-65535"} {
			wantError(t, b.as(text, "POST", "/v1/keys", body(ports)), api.CodeForbidden)
		}
	}
	k := into[api.NewKey](t, b.as(some, "POST", "/v1/keys", body("8050-8060")), 201)
	if !slices.Equal(k.HostPorts, []string{"8050-8060"}) {
		t.Errorf("got %q", k.HostPorts)
	}
	wantError(t, b.as(b.acme, "POST", "/v1/keys/"+k.ID+"/rotate", ""), api.CodeForbidden)
	into[api.NewKey](t, b.as(some, "POST", "/v1/keys/"+k.ID+"/rotate", ""), 200)
	into[api.NewKey](t, b.do("POST", "/v1/keys", body("22")), 201)
	wantError(t, b.do("POST", "/v1/keys", body("0")), api.CodeInvalid)
	if _, _, err := b.keys.Create(keys.Spec{Name: "x", Scopes: principal.Read, HostPorts: []string{"all"}}); err == nil {
		t.Error("a grant that is no port was taken")
	}
}
