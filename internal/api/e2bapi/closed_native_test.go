package e2bapi_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// operatorToken gives access to the native API.
const operatorToken = "0123456789abcdef0123456789abcdef"

// nativeCall is a successful request to a route of one sandbox.
type nativeCall struct {
	path, body string // path replaces the route's path if it is set
	status     int
}

// nativeCalls returns a call of each route of the native API about one sandbox. A new route needs a
// row: the walk fails without one.
func nativeCalls() map[string]nativeCall {
	const at = "/v1/sandboxes/{id}"
	return map[string]nativeCall{
		"GET " + at:                             {status: 200},
		"GET " + at + "/memory":                 {status: 200},
		"GET " + at + "/console":                {status: 200},
		"GET " + at + "/receipt":                {status: 200},
		"GET " + at + "/network":                {status: 200},
		"GET " + at + "/network/log":            {status: 200},
		"GET " + at + "/network/flows":          {status: 200},
		"PUT " + at + "/network":                {body: `{"net":"public"}`, status: 200},
		"PATCH " + at + "/life":                 {body: `{"auto_resume":true}`, status: 200},
		"PATCH " + at + "/labels":               {body: `{"set":{"a":"b"}}`, status: 200},
		"POST " + at + "/ping":                  {status: 200},
		"POST " + at + "/exec":                  {body: `{"args":["echo","x"]}`, status: 200},
		"POST " + at + "/eval":                  {body: `{"code":"6*7"}`, status: 200},
		"GET " + at + "/agent/{path}":           {path: at + "/agent/envs", status: 200},
		"POST " + at + "/agent/{path}":          {path: at + "/agent/process.Process/List", body: `{}`, status: 200},
		"GET " + at + "/ports/{port}/connect":   {status: 101},
		"POST " + at + "/ports/{port}/connect":  {status: 101},
		"POST " + at + "/branch":                {body: `{"n":2}`, status: 201},
		"POST " + at + "/rollback":              {body: `{"snapshot_tag":"base"}`, status: 200},
		"POST " + at + "/merge":                 {body: `{"theirs":"base","dry_run":true}`, status: 200},
		"POST " + at + "/promote":               {body: `{}`, status: 409}, // without a parent; TestAPromotionOpensNoSandbox
		"POST " + at + "/pause":                 {status: 200},
		"POST " + at + "/handover":              {body: `{}`, status: 409}, // only a paused one moves
		"POST " + at + "/resume":                {status: 200},
		"GET " + at + "/services":               {status: 200},
		"PUT " + at + "/services/{service}":     {path: at + "/services/web", body: `{"command":["sleep","9"]}`, status: 200},
		"POST " + at + "/services/{service}":    {path: at + "/services/web", body: `{"action":"restart"}`, status: 404},
		"GET " + at + "/services/{service}/log": {path: at + "/services/web/log", status: 404},
		"DELETE " + at + "/services/{service}":  {path: at + "/services/web", status: 404},
		"DELETE " + at:                          {status: 204},
	}
}

// nativeBench serves both APIs on one listener, as the daemon does.
type nativeBench struct {
	*closedBench
	api  *httpapi.Server
	port string // of a server in each guest
	seen map[string]bool
}

func newNativeBench(t *testing.T) *nativeBench {
	t.Helper()
	n := &nativeBench{closedBench: newClosedBench(t), seen: map[string]bool{}}
	n.api = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(native{n.engine}), Images: fakeengine.NewImages("base"), Ingress: n.h})
	n.server.Close()
	n.server = httptest.NewServer(n.api.Handler(auth.Access{Token: operatorToken}))
	t.Cleanup(n.server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	n.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return n
}

// routes returns the routes of one sandbox, with routes that end it last. It reads the API's
// document, which lists every registered route.
func (n *nativeBench) routes() (patterns []string) {
	n.t.Helper()
	b, err := n.api.OpenAPI()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if strings.HasPrefix(path, "/v1/sandboxes/{id}") {
				patterns = append(patterns, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.SortFunc(patterns, func(a, b string) int {
		return strings.Compare(strings.Replace(a, "DELETE", "Z", 1), strings.Replace(b, "DELETE", "Z", 1))
	})
	return patterns
}

// call sends a request as the operator. It returns when the answer has begun and ended, or has
// switched protocols.
func (n *nativeBench) call(method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, n.server.URL+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operatorToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasSuffix(path, "/connect") {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", api.UpgradeTCP)
	}
	resp, err := n.server.Client().Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(all)
}

// wantAllClosed checks a sandbox, and the sandboxes made since the last check.
func (n *nativeBench) wantAllClosed(id, after string) {
	n.t.Helper()
	n.wantClosed(id, after)
	for _, i := range n.engine.List() {
		if !n.seen[i.ID] {
			n.seen[i.ID] = true
			n.wantClosed(i.ID, after+", the new "+i.ID)
		}
	}
	if code, _ := n.anonymous("/v1/sandboxes/" + id); code != http.StatusUnauthorized {
		n.t.Errorf("after %s, the API answers a stranger %d", after, code)
	}
}

func (n *nativeBench) anonymous(path string) (int, error) {
	resp, err := n.server.Client().Get(n.server.URL + path)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// TestNoNativeRouteOpensASandbox calls every route of the native API on a sandbox of each kind.
func TestNoNativeRouteOpensASandbox(t *testing.T) {
	n := newNativeBench(t)
	calls, patterns := nativeCalls(), n.routes()
	for pattern := range calls {
		if !slices.Contains(patterns, pattern) {
			t.Errorf("%s is in nativeCalls, and no route", pattern)
		}
	}
	for kind, id := range n.kinds {
		n.wantAllClosed(id, "the start ("+kind+")")
		for _, pattern := range patterns {
			method, path, _ := strings.Cut(pattern, " ")
			c, ok := calls[pattern]
			if !ok {
				t.Errorf("%s has no row in nativeCalls", pattern)
				continue
			}
			if c.path != "" {
				path = c.path
			}
			path = strings.NewReplacer("{id}", id, "{port}", n.port).Replace(path)
			if code, body := n.call(method, path, c.body); code != c.status {
				t.Errorf("%s on %s: %d %.200s", pattern, kind, code, body)
			}
			n.wantAllClosed(id, pattern+" ("+kind+")")
			if strings.HasSuffix(pattern, "/pause") {
				n.call("POST", "/v1/sandboxes/"+id+"/resume", "")
				n.wantAllClosed(id, "a resume ("+kind+")")
			}
		}
		if _, err := n.engine.Get(id); err == nil {
			t.Errorf("%s outlived the walk: not every route had an effect", kind)
		}
	}
}

// TestAPromotionOpensNoSandbox puts a child in the place of a sandbox of each kind.
func TestAPromotionOpensNoSandbox(t *testing.T) {
	n := newNativeBench(t)
	for kind, id := range n.kinds {
		code, body := n.call("POST", "/v1/sandboxes/"+id+"/branch", `{"n":1}`)
		var made api.BranchResult
		if err := json.Unmarshal([]byte(body), &made); err != nil || code != 201 || len(made.Children) != 1 {
			t.Fatalf("branch of %s: %d %v %.200s", kind, code, err, body)
		}
		if code, body := n.call("POST", "/v1/sandboxes/"+made.Children[0].ID+"/promote", `{}`); code != 200 {
			t.Fatalf("promotion of a child of %s: %d %.200s", kind, code, body)
		}
		n.wantAllClosed(id, "a promotion ("+kind+")")
	}
}

// TestAPublicSandboxIsOpen shows that the requests of the walk reach an open port.
func TestAPublicSandboxIsOpen(t *testing.T) {
	n := newNativeBench(t)
	public := false
	res, err := n.engine.Fork(t.Context(), sandbox.ForkRequest{Tag: "base", N: 1, PrivatePorts: &public})
	if err != nil {
		t.Fatal(err)
	}
	a := n.do("GET", "/", "", "X-API-KEY", "", "E2b-Sandbox-Id", sandbox.DNSID(res.Children[0].Info.ID), "E2b-Sandbox-Port", n.port)
	if a.StatusCode != 200 {
		t.Errorf("a public port answers a stranger %s: %s", a.Status, a.body)
	}
}
