package e2bapi_test

import (
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// The request decides about ports. The default is public, as with E2B, or private if the operator
// has set it.
func TestPortsByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		private bool
		network string
		closed  bool
	}{
		"E2B's default":                        {private: false, network: ``, closed: false},
		"E2B's default, private asked for":     {private: false, network: `,"network":{"allowPublicTraffic":false}`, closed: true},
		"private by default":                   {private: true, network: ``, closed: true},
		"private by default, other rules":      {private: true, network: `,"network":{"allowOut":["*"]}`, closed: true},
		"private by default, public asked for": {private: true, network: `,"network":{"allowPublicTraffic":true}`, closed: false},
	} {
		for _, key := range []string{apiKey, "tenant_a"} {
			t.Run(name+"/"+key[:6], func(t *testing.T) {
				b := newBench(t, func(o *e2bapi.Options) { o.PrivatePorts = c.private })
				if key != apiKey { // a tenant has only its own and the public templates
					b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "tenant_a-base", Owner: "tenant_a", Status: sandbox.SnapshotReady})
				}
				for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
					s := want[created](t, b.do("POST", path, `{"templateID":"base","timeout":60`+c.network+`}`, "X-API-KEY", key), 201)
					info, err := b.engine.Get(sandbox.CanonicalID(s.SandboxID))
					if err != nil || info.PrivatePorts() != c.closed || (s.TrafficAccessToken != nil) != c.closed {
						t.Errorf("%s: %+v, token %v; %v", path, info.PortAccess(), s.TrafficAccessToken, err)
					}
					if path == "/sandboxes" && (s.EnvdAccessToken != "") != c.closed {
						t.Errorf("the agent's token is %q", s.EnvdAccessToken)
					}
					a := b.do("GET", "/", "", "X-API-KEY", "", "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "1")
					if refused := a.StatusCode == 403; refused != c.closed {
						t.Errorf("%s: a stranger gets %s", path, a.Status)
					}
				}
			})
		}
	}
}
