package e2bapi_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// sandboxBodies returns a valid body for each route of one sandbox. A new route needs a row: the
// walk fails without one.
func sandboxBodies() map[string]string {
	return map[string]string{
		"GET /sandboxes/{id}": "", "GET /sandboxes/{id}/metrics": "", "GET /sandboxes/{id}/logs": "",
		"GET /v2/sandboxes/{id}/logs":     "",
		"POST /sandboxes/{id}/connect":    `{"timeout":60}`,
		"POST /v2/sandboxes/{id}/connect": `{}`,
		"POST /sandboxes/{id}/resume":     `{}`,
		"POST /sandboxes/{id}/pause":      `{}`,
		"POST /sandboxes/{id}/timeout":    `{"timeout":60}`,
		"POST /sandboxes/{id}/refreshes":  `{"duration":60}`,
		"POST /sandboxes/{id}/snapshots":  `{}`,
		"POST /sandboxes/{id}/fork":       `{}`,
		"PUT /sandboxes/{id}/network":     `{"allowPublicTraffic":true}`,
		"DELETE /sandboxes/{id}":          "",
	}
}

// closedBench has one sandbox of each kind, all with private ports.
type closedBench struct {
	*bench
	dir   string
	kinds map[string]string // ID by kind
}

func newClosedBench(t *testing.T) *closedBench {
	t.Helper()
	c := &closedBench{dir: t.TempDir(), kinds: map[string]string{}}
	damaged := `{"id":"`
	c.bench = newBench(t)
	made := c.create(`{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	c.kinds["E2B"] = sandbox.CanonicalID(made.SandboxID)
	private := true
	for _, kind := range []string{"native", "guest-forked", "damaged record", "record without a token"} {
		req := sandbox.ForkRequest{Tag: "base", N: 1, PrivatePorts: &private}
		if kind == "guest-forked" {
			req.Kin = sandbox.Kin{Parent: c.kinds["native"]}
		}
		res, err := c.engine.Fork(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		c.kinds[kind] = res.Children[0].Info.ID
	}
	c.write(c.kinds["damaged record"], damaged)
	c.write(c.kinds["record without a token"], `{"id":"`+c.kinds["record without a token"]+`","template":"base"}`)
	rec, _ := c.store.Get(c.kinds["E2B"])
	c.reopen()
	if err := c.store.Put(rec); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *closedBench) write(id, content string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, id+".json"), []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// reopen starts another handler with the records on disk, like a new daemon.
func (c *closedBench) reopen() {
	c.t.Helper()
	store, _, err := records.Open(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server.Close()
	b := newBench(c.t, func(o *e2bapi.Options) {
		o.Records, o.Engine, o.Lives = store, c.engine, c.engine
		o.View = nil
		o.Ports = portsOf(c.engine)
	})
	b.engine, b.store = c.engine, store
	c.bench = b
}

// wantClosed sends requests without any token.
func (c *closedBench) wantClosed(id, after string) {
	c.t.Helper()
	if _, err := c.engine.Get(id); err != nil {
		return
	}
	ask := func(port, path string) answer {
		return c.do("GET", path, "", "X-API-KEY", "", "E2b-Sandbox-Id", sandbox.DNSID(id), "E2b-Sandbox-Port", port)
	}
	refused := []int{http.StatusUnauthorized}
	if a := c.do("GET", "/v2/sandboxes?state=paused", ""); strings.Contains(a.body, sandbox.DNSID(id)) {
		refused = append(refused, http.StatusBadGateway) // it is paused
	}
	for _, path := range []string{"/envs", "/files?path=/etc/passwd", "/files?path=/etc/passwd&signature=v1_x"} {
		if a := ask("49983", path); !slices.Contains(refused, a.StatusCode) {
			c.t.Errorf("after %s, %s answers a stranger %s: %.60q", after, path, a.Status, a.body)
		}
	}
	if a := ask("8080", "/"); a.StatusCode != http.StatusForbidden && !slices.Contains(refused[1:], a.StatusCode) {
		c.t.Errorf("after %s, a private port answers a stranger %s: %.60q", after, a.Status, a.body)
	}
}

// TestNoRouteOpensASandbox calls every route of the control API on a sandbox of each kind.
func TestNoRouteOpensASandbox(t *testing.T) {
	c := newClosedBench(t)
	bodies := sandboxBodies()
	var patterns []string
	for pattern := range c.h.Routes() {
		if strings.Contains(pattern, "/sandboxes/{id}") {
			patterns = append(patterns, pattern)
		}
	}
	slices.SortFunc(patterns, func(a, b string) int { // routes that end it come last
		return strings.Compare(strings.Replace(a, "DELETE", "Z", 1), strings.Replace(b, "DELETE", "Z", 1))
	})
	for kind, id := range c.kinds {
		c.wantClosed(id, "the start ("+kind+")")
		for _, pattern := range patterns {
			body, ok := bodies[pattern]
			if !ok {
				t.Errorf("%s has no body in sandboxBodies", pattern)
				continue
			}
			method, path, _ := strings.Cut(pattern, " ")
			a := c.do(method, strings.ReplaceAll(path, "{id}", sandbox.DNSID(id)), body)
			if a.StatusCode >= 500 {
				t.Errorf("%s on %s: %s %s", pattern, kind, a.Status, a.body)
			}
			c.wantClosed(id, pattern+" ("+kind+")")
			if strings.HasSuffix(pattern, "/pause") {
				c.do("POST", "/sandboxes/"+sandbox.DNSID(id)+"/resume", `{"timeout":60}`)
			}
		}
	}
}

// TestARecordIsClosedAfterARestart writes records by the three routes and reads them with a new
// store.
func TestARecordIsClosedAfterARestart(t *testing.T) {
	c := newClosedBench(t)
	for kind, id := range c.kinds {
		c.do("POST", "/sandboxes/"+sandbox.DNSID(id)+"/timeout", `{"timeout":600}`)
		c.do("PUT", "/sandboxes/"+sandbox.DNSID(id)+"/network", `{}`)
		c.wantClosed(id, "timeout and network ("+kind+")")
	}
	c.reopen()
	for kind, id := range c.kinds {
		c.wantClosed(id, "a restart ("+kind+")")
		s := want[created](t, c.do("POST", "/sandboxes/"+sandbox.DNSID(id)+"/connect", `{"timeout":60}`), 200)
		if a := c.envd(s, "GET", "/envs", ""); s.EnvdAccessToken == "" || a.StatusCode != 200 {
			t.Errorf("connect to %s: token %q, %s", kind, s.EnvdAccessToken, a.Status)
		}
		c.wantClosed(id, "connect ("+kind+")")
	}
}

// TestAPrivateSandboxHasAPrivateAgent creates a sandbox without secure, by the first version of the
// API.
func TestAPrivateSandboxHasAPrivateAgent(t *testing.T) {
	b := newBench(t)
	s := want[created](t, b.do("POST", "/sandboxes",
		`{"templateID":"base","network":{"allowPublicTraffic":false}}`), 201)
	token := s.EnvdAccessToken
	s.EnvdAccessToken = ""
	if a := b.envd(s, "GET", "/envs", ""); a.StatusCode != 401 || token == "" {
		t.Errorf("without a token: %s, the token is %q", a.Status, token)
	}
}
