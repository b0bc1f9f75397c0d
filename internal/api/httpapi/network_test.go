package httpapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestNetworkOfARequest(t *testing.T) {
	b := newBench(t)
	post := func(extra string) api.SandboxInfo {
		t.Helper()
		return into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"`+extra+`}`), 201)[0]
	}
	for _, tc := range []struct {
		name, extra string
		want        api.NetworkSummary
	}{
		{"nothing said", ``, api.NetworkSummary{Policy: api.NetNone}},
		{"the original's field", `,"per_child_netns":true`, api.NetworkSummary{Policy: api.NetNone}},
		{"by name", `,"net":"public"`, api.NetworkSummary{Policy: api.NetPublic}},
		{"a tap", `,"network":{"tap":"tap0"}`, api.NetworkSummary{Policy: api.NetTap, Tap: "tap0"}},
		{"in full", `,"network":{"default":"public","deny":["example.org"]}`, api.NetworkSummary{Policy: api.NetCustom, Deny: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sb := post(tc.extra)
			if n := sb.Network; n == nil || n.Policy != tc.want.Policy || n.Allow != tc.want.Allow || n.Deny != tc.want.Deny || n.Tap != tc.want.Tap {
				t.Errorf("got %+v, want %+v", n, tc.want)
			}
			if sb.Netns != nil || sb.GuestAddr != "192.0.0.2" {
				t.Errorf("netns %v, address %q", sb.Netns, sb.GuestAddr)
			}
		})
	}
	for _, bad := range []string{`,"net":"all"`, `,"net":"none","network":{}`, `,"network":{"default":"maybe"}`} {
		wantError(t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"`+bad+`}`), api.CodeInvalid)
	}
	e := wantError(t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","network":{"allow":["x:99999"]}}`), api.CodeInvalid)
	if e.Reason != api.ReasonNetRule || !strings.Contains(e.Message, "x:99999") {
		t.Errorf("a bad rule: %+v", e)
	}
}

func TestRequestsForATap(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for name, tc := range map[string]struct{ method, path, body string }{
		"one that is not allowed": {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","network":{"tap":"eth0"}}`},
		"two children":            {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2,"network":{"tap":"tap0"}}`},
		"with rules":              {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","network":{"tap":"tap0","allow":["x.org"]}}`},
		"with a name":             {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","net":"public","network":{"tap":"tap0"}}`},
		"while it runs":           {"PUT", "/v1/sandboxes/" + id + "/network", `{"network":{"tap":"tap0"}}`},
		"children of a branch":    {"POST", "/v1/sandboxes/" + id + "/branch", `{"network":{"tap":"tap0"},"n":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := wantError(t, b.do(tc.method, tc.path, tc.body), api.CodeInvalid)
			if e.Reason != api.ReasonNetTap {
				t.Errorf("got %+v", e)
			}
		})
	}
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","network":{"tap":"tap0"}}`), 201)[0]
	n := into[api.SandboxNetwork](t, b.do("GET", "/v1/sandboxes/"+sb.ID+"/network", ""), 200)
	if n.Tap != "tap0" || n.Network.Tap != "tap0" || n.Effective.Tap != "" {
		t.Errorf("got %+v", n)
	}
}

func TestTheCeilingsCutIsInTheAnswer(t *testing.T) {
	b := newBench(t)
	b.engine.NoNetwork = true
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","net":"public"}`), 201)[0]
	if n := sb.Network; n.Policy != api.NetNone || len(n.Cut) != 1 {
		t.Errorf("got %+v", n)
	}
}

func TestNetworkRoutes(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	path := "/v1/sandboxes/" + id + "/network"
	body := `{"network":{"allow":["example.org:443"],"headers":[{"host":"example.org","headers":{"X-Key":"k"}}]}}`
	n := into[api.SandboxNetwork](t, b.do("PUT", path, body), 200)
	if n.Policy != api.NetCustom || n.Network.Default != "deny" || n.Effective.Allow[0] != "example.org:443" {
		t.Errorf("got %+v", n)
	}
	if n = into[api.SandboxNetwork](t, b.do("GET", path, ""), 200); n.Allow != 1 {
		t.Errorf("got %+v", n)
	}
	if flows := into[[]api.NetworkFlow](t, b.do("GET", path+"/flows", ""), 200); len(flows) != 1 {
		t.Errorf("got %+v", flows)
	}
	w := b.do("GET", path+"/log", "")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" ||
		!strings.HasSuffix(w.Body.String(), "}\n") || !strings.Contains(w.Body.String(), `"verdict":"denied"`) {
		t.Errorf("log: %d %s", w.Code, w.Body)
	}
	wantError(t, b.do("PUT", path, `{}`), api.CodeInvalid)
	wantError(t, b.do("GET", path+"/log?follow=maybe", ""), api.CodeInvalid)
	wantError(t, b.do("GET", "/v1/sandboxes/sb-none/network/log?follow=true", ""), api.CodeNotFound)
	b.engine.Fail(id, "it was ended")
	wantError(t, b.do("PUT", path, `{"net":"none"}`), api.CodeGuestGone)
	wantError(t, b.do("GET", path+"/flows", ""), api.CodeGuestGone)
}
