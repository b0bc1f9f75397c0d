package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
)

// Every route that changes something has a name in the audit log.
func TestEveryChangeHasAnAction(t *testing.T) {
	for _, route := range newBench(t).server.Routes() {
		method, _, _ := strings.Cut(route, " ")
		if method != http.MethodGet && method != http.MethodHead && !auditing.Named(route) {
			t.Errorf("%s has no name: add it to the table in actions.go", route)
		}
	}
}

// lines returns the lines of the audit log.
func (b *bench) lines() []audit.Entry {
	b.t.Helper()
	var all []audit.Entry
	for dec := json.NewDecoder(strings.NewReader(b.audit.String())); dec.More(); {
		var e audit.Entry
		if err := dec.Decode(&e); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestActionsAreNamed(t *testing.T) {
	b := newBench(t)
	b.fork("1")
	const sb = "/v1/sandboxes/sb-00000001-0001"
	for _, c := range []struct {
		method, path, body string
		action, object     string
		result             audit.Result
		read               bool
	}{
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`, "sandbox.fork", "", audit.OK, false},
		{"POST", "/v1/sandboxes", `{`, "sandbox.fork", "", audit.Refused, false},
		{"GET", "/v1/sandboxes", "", "sandbox.read", "", audit.OK, true},
		{"GET", "/v1/snapshots/py/info", "", "snapshot.read", "", audit.OK, true},
		{"GET", "/version", "", "daemon.read", "", audit.OK, true},
		{"POST", sb + "/exec", `{"args":["echo","x"]}`, "sandbox.exec", "", audit.OK, false},
		{"POST", sb + "/branch", `{"tag":"x"}`, "sandbox.branch", "", audit.OK, false},
		{"PUT", sb + "/network", `{"net":"none"}`, "network.set", "", audit.OK, false},
		{"PUT", "/v1/snapshots/py/pool", `{"size":1}`, "pool.set", "", audit.OK, false},
		{"POST", "/v1/sandboxes/sb-none/agent/files?path=/etc/motd", "x", "file.write", "/etc/motd", audit.Refused, false},
		{"POST", "/v1/sandboxes/sb-none/agent/filesystem.Filesystem/Remove", "x", "file.remove", "", audit.Refused, false},
		{"POST", "/v1/sandboxes/sb-none/agent/process.Process/Start", "x", "process.start", "", audit.Refused, false},
		{"GET", "/v1/sandboxes/sb-none/agent/else", "", "agent.request", "", audit.Refused, true},
		{"PATCH", "/v1/sandboxes/sb-none/agent/else", "", "agent.request", "", audit.Refused, false},
		{"DELETE", "/v1/sandboxes/sb-none", "", "sandbox.kill", "", audit.Refused, false},
		{"GET", "/nothing", "", "none", "", audit.Refused, true},
		{"PUT", "/v1/sandboxes", "", "none", "", audit.Refused, true},
	} {
		b.audit.Reset()
		b.do(c.method, c.path, c.body)
		got := b.lines()[0]
		if got.Action != c.action || got.Object != c.object || got.Result != c.result || got.Read != c.read {
			t.Errorf("%s %s: got %+v", c.method, c.path, got)
		}
	}
}

// A client without a valid token is recorded with the attempted action.
func TestARefusedRequestIsAudited(t *testing.T) {
	b := newBench(t)
	r := httptest.NewRequest("DELETE", "/v1/snapshots/py", nil)
	r.Header.Set("Authorization", "Bearer secret-0123456789")
	b.h.ServeHTTP(httptest.NewRecorder(), r)
	if got := b.lines()[0]; got.Action != "snapshot.delete" || got.Result != audit.Refused || got.Status != 401 ||
		strings.Contains(b.audit.String(), "secret-0123") {
		t.Errorf("got %s", b.audit)
	}
}

// A request has one ID: in the answer's header, in its error, and in the audit log.
func TestRequestIDs(t *testing.T) {
	b := newBench(t)
	seen := map[string]bool{}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/version", ""}, {"GET", "/v1/sandboxes/sb-none", ""}, {"POST", "/v1/sandboxes", "{"},
		{"POST", "/v1/sandboxes", `{"n":-1}`}, {"GET", "/nothing", ""}, {"GET", "/v1/sandboxes/sb-none/network/log", ""},
		{"GET", "/v1/snapshots/a%20b/info", ""}, {"GET", "/v1/sandboxes/sb-none/agent/health", ""},
	} {
		b.audit.Reset()
		w := b.do(c.method, c.path, c.body)
		id := w.Header().Get(api.HeaderRequestID)
		if !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(id) || seen[id] {
			t.Errorf("%s %s has ID %q", c.method, c.path, id)
		}
		seen[id] = true
		if got := b.lines()[0].Request; got != id {
			t.Errorf("%s %s: the audit log has %q, the answer %q", c.method, c.path, got, id)
		}
		var e api.Error
		if w.Code >= 400 && (json.Unmarshal(w.Body.Bytes(), &e) != nil || e.RequestID != id) {
			t.Errorf("%s %s: the error is %s, the ID %q", c.method, c.path, w.Body, id)
		}
	}
}

// tenantHeader names the sending tenant in tests.
const tenantHeader = "Test-Tenant"

type tenantKey struct{}

// asTenants returns a server that takes the tenant of a request from its header.
func (b *bench) asTenants(opt httpapi.Options) http.Handler {
	opt.Engine, opt.Images, opt.Audit = fakeengine.Roles(b.engine), b.images, httpapi.NewAudit(b.audit, b.now)
	opt.Asker = func(ctx context.Context) requestinfo.Asker {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		return requestinfo.Asker{Key: "k-" + tenant, Name: "ci", Tenant: tenant}
	}
	h := httpapi.New(opt).Handler(auth.Access{Token: token})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, r.Header.Get(tenantHeader))))
	})
}

func TestWhoAskedIsAudited(t *testing.T) {
	b := newBench(t)
	h := b.asTenants(httpapi.Options{})
	r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
	r.Header.Set(tenantHeader, "acme")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if got := b.lines()[0]; got.Tenant != "acme" || got.Key != "k-acme" || got.KeyName != "ci" {
		t.Errorf("got %+v", got)
	}
}
