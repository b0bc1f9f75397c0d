package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

func TestAPrivateNetworkIsMadeJoinedAndRemoved(t *testing.T) {
	b := newBench(t)
	into[api.PrivateNetwork](t, b.do("POST", "/v1/networks", `{"name":"shop"}`), 201)
	fork := func(more string) string { return `{"snapshot_tag":"py"` + more + `}` }
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", fork(`,"net_join":{"network":"shop","alias":"db"}`)), 201)[0]
	if sb.NetJoin == nil || *sb.NetJoin != (api.NetJoin{Network: "shop", Alias: "db"}) {
		t.Errorf("the sandbox has %+v", sb.NetJoin)
	}
	got := into[api.PrivateNetwork](t, b.do("GET", "/v1/networks/shop", ""), 200)
	if len(got.Members) != 1 || got.Members[0].Sandbox != sb.ID || got.Members[0].Name != "db.forkd.internal" {
		t.Errorf("the network is %+v", got)
	}
	for name, c := range map[string]struct {
		method, path, body string
		code               api.Code
		reason             api.Reason
	}{
		"a taken name":    {"POST", "/v1/networks", `{"name":"shop"}`, api.CodeConflict, api.ReasonNetworkExists},
		"removal":         {"DELETE", "/v1/networks/shop", "", api.CodeConflict, api.ReasonNetworkInUse},
		"an unknown name": {"GET", "/v1/networks/none", "", api.CodeNotFound, api.ReasonNetworkNotFound},
		"a taken alias": {"POST", "/v1/sandboxes", fork(`,"net_join":{"network":"shop","alias":"db"}`), api.CodeConflict,
			api.ReasonNetworkAlias},
		"one alias for two": {"POST", "/v1/sandboxes", fork(`,"n":2,"net_join":{"network":"shop","alias":"x"}`), api.CodeInvalid,
			api.ReasonNetworkAlias},
		"an unknown network": {"POST", "/v1/sandboxes", fork(`,"net_join":{"network":"none"}`), api.CodeNotFound,
			api.ReasonNetworkNotFound},
		"an alias with a dot": {"POST", "/v1/sandboxes", fork(`,"net_join":{"network":"shop","alias":"a.b"}`), api.CodeInvalid, ""},
		"a bad name":          {"POST", "/v1/networks", `{"name":"../x"}`, api.CodeInvalid, ""},
	} {
		if e := wantError(t, b.do(c.method, c.path, c.body), c.code); e.Reason != c.reason {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if w := b.do("DELETE", "/v1/sandboxes/"+sb.ID, ""); w.Code != 204 {
		t.Fatalf("kill: %d", w.Code)
	}
	if w := b.do("DELETE", "/v1/networks/shop", ""); w.Code != 204 {
		t.Errorf("removal: %d %s", w.Code, w.Body)
	}
}

// A tenant neither sees nor joins the networks of others, the operator's among them.
func TestPrivateNetworksOfOthers(t *testing.T) {
	b := newBench(t)
	into[api.PrivateNetwork](t, b.do("POST", "/v1/networks", `{"name":"shop"}`), 201)
	_, text, err := b.keys.Create(keys.Spec{Name: "k", Tenant: "acme", Scopes: principal.Read | principal.Fork})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) *httptest.ResponseRecorder { return as(b, text, method, path, body) }
	if list := into[[]api.PrivateNetwork](t, ask("GET", "/v1/networks", ""), 200); len(list) != 0 {
		t.Errorf("the tenant sees %+v", list)
	}
	for _, r := range [][2]string{{"GET", ""}, {"DELETE", ""}} {
		if e := wantError(t, ask(r[0], "/v1/networks/shop", r[1]), api.CodeNotFound); e.Reason != api.ReasonNetworkNotFound {
			t.Errorf("%s: %+v", r[0], e)
		}
	}
	own := into[api.PrivateNetwork](t, ask("POST", "/v1/networks", `{"name":"shop"}`), 201)
	if !strings.HasPrefix(own.ID, "net-") || own.Tenant == "" {
		t.Errorf("its own is %+v", own)
	}
}

func TestAGroupIsForked(t *testing.T) {
	b := newBench(t)
	into[api.PrivateNetwork](t, b.do("POST", "/v1/networks", `{"name":"shop"}`), 201)
	if e := wantError(t, b.do("POST", "/v1/networks/shop/fork", ""), api.CodeConflict); e.Reason != api.ReasonNetworkEmpty {
		t.Errorf("an empty network: %+v", e)
	}
	for _, alias := range []string{"db", "web"} {
		into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes",
			`{"snapshot_tag":"py","net_join":{"network":"shop","alias":"`+alias+`"}}`), 201)
	}
	got := into[api.ForkGroupResult](t, b.do("POST", "/v1/networks/shop/fork", `{"n":2}`), 201)
	if len(got.Copies) != 2 || got.PauseMS <= 0 {
		t.Fatalf("the answer is %+v", got)
	}
	for i, c := range got.Copies {
		if want := []string{"shop-1", "shop-2"}[i]; c.Network != want || len(c.Sandboxes) != 2 || c.Sandboxes[0].NetJoin.Alias != "db" {
			t.Errorf("copy %d is %+v, want network %s", i, c, want)
		}
	}
	for body, code := range map[string]api.Code{`{"n":0}`: api.CodeInvalid, `{"n":16}`: api.CodeInvalid,
		`{"prefix":"../x"}`: api.CodeInvalid, `{"n":15}`: api.CodeQuota} {
		wantError(t, b.do("POST", "/v1/networks/shop/fork", body), code)
	}
	_, text, err := b.keys.Create(keys.Spec{Name: "k", Tenant: "acme", Scopes: principal.Read | principal.Fork})
	if err != nil {
		t.Fatal(err)
	}
	if e := wantError(t, as(b, text, "POST", "/v1/networks/shop/fork", "{}"), api.CodeNotFound); e.Reason != api.ReasonNetworkNotFound {
		t.Errorf("another tenant's network: %+v", e)
	}
}
