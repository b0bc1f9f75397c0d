package e2bapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/keys"
)

// TestE2BPoliciesReachOnlyGrantedPortsOfTheHost sets allowOut for a new sandbox and for a running
// one.
func TestE2BPoliciesReachOnlyGrantedPortsOfTheHost(t *testing.T) {
	d := newDaemon(t)
	granted := d.key(keys.Spec{Name: "g", Tenant: "acme", HostPorts: []string{"8080"}})
	const network = `{"allowOut":["host.forkd.internal:8080","host.forkd.internal:22"],"denyOut":["0.0.0.0/0"]}`
	for key, want := range map[string]string{d.acme: "", d.evil: "", granted: "host.forkd.internal:8080"} {
		s := want201(d, key, `{"templateID":"open","network":`+network+`}`)
		check := func(when string) {
			t.Helper()
			n, err := d.engine.Network(nativeID(d, s.SandboxID))
			if got := strings.Join(n.Effective.Allow, " "); err != nil || got != want {
				t.Errorf("%s: reaches %q, want %q (%v)", when, got, want, err)
			}
		}
		check("made")
		if a := d.as(key, "PUT", "/sandboxes/"+s.SandboxID+"/network", network); a.StatusCode != 204 {
			t.Fatalf("got %d: %s", a.StatusCode, a.body)
		}
		check("changed")
	}
}

// nativeID returns the engine's ID of a sandbox, which has dashes.
func nativeID(d *daemon, id string) string {
	for _, i := range d.engine.List() {
		if strings.ReplaceAll(i.ID, "-", "") == id {
			return i.ID
		}
	}
	return id
}

func want201(d *daemon, key, body string) created {
	d.t.Helper()
	return want[created](d.t, d.as(key, "POST", "/v2/sandboxes", body), 201)
}
