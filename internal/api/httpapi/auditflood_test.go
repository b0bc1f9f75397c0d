package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"

	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// audited returns a server with keys and a small audit log. finish closes the log.
func audited(t *testing.T) (b *bench, path string, finish func()) {
	b = newBench(t)
	path = filepath.Join(t.TempDir(), "audit.log")
	l, err := audit.Open(audit.Config{Path: path, MaxBytes: 64 << 10, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	b.h = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, Audit: l, AuditFile: path, Keys: b.keys}).
		Handler(auth.Access{Token: token, Keys: b.keys})
	return b, path, func() {
		if err := l.Close(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

// with sends a request that shows a text as its token.
func (b *bench) with(shown, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if shown != "" {
		r.Header.Set("Authorization", "Bearer "+shown)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// newKey makes a key and returns its text.
func (b *bench) newKey(s keys.Spec) string {
	b.t.Helper()
	_, text, err := b.keys.Create(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func auditLines(t *testing.T, path string, f audit.Filter) (all []audit.Entry) {
	t.Helper()
	err := audit.Read(context.Background(), path, audit.Query{Filter: f}, func(_ []byte, e audit.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The audit line of a new key has the key's ID, tenant and scopes.
func TestTheAuditLogNamesTheKeyThatWasMade(t *testing.T) {
	b, path, finish := audited(t)
	made := b.do("POST", "/v1/keys", `{"name":"made","tenant":"acme","scopes":["read","run"]}`)
	var k api.NewKey
	if err := json.Unmarshal(made.Body.Bytes(), &k); err != nil || k.ID == "" {
		t.Fatal(err, made.Body)
	}
	b.do("DELETE", "/v1/keys/"+k.ID, "")
	finish()
	for _, action := range []string{"key.create", "key.revoke"} {
		got := auditLines(t, path, audit.Filter{Action: action})
		if len(got) != 1 || got[0].Object != k.ID || got[0].Note != "name made, tenant acme, scopes read,run" {
			t.Errorf("%s: %+v", action, got)
		}
		if strings.Contains(fmt.Sprint(got), k.Text) {
			t.Error("the text of the key is in the log")
		}
	}
}

// Requests without a token are counted. They remove no line of the operator or of a tenant.
func TestAnonymousRequestsKeepTheAuditLog(t *testing.T) {
	b, path, finish := audited(t)
	acme := b.newKey(keys.Spec{Name: "a", Tenant: "acme", Scopes: principal.All})
	b.do("POST", "/v1/keys", `{"name":"made","tenant":"evil"}`)
	if w := b.with(acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`); w.Code != 404 && w.Code != 201 {
		t.Fatal(w.Code, w.Body)
	}
	const floods = 3000
	for i := range floods {
		w := b.with("", "DELETE", fmt.Sprintf("/v1/sandboxes/sb-%d?x=%s", i, strings.Repeat("x", 300)), "")
		if w.Code != 401 {
			t.Fatal(w.Code)
		}
	}
	finish()
	if got := auditLines(t, path, audit.Filter{Action: "key.create"}); len(got) != 1 {
		t.Errorf("the operator has %d lines of key.create left, want 1", len(got))
	}
	if got := auditLines(t, path, audit.Filter{Tenant: "acme"}); len(got) != 1 {
		t.Errorf("the tenant has %d lines left, want 1", len(got))
	}
	refused := auditLines(t, path, audit.Filter{Action: "sandbox.kill"})
	lines, counted := 0, 0
	for _, e := range refused {
		lines, counted = lines+1, counted+max(e.Count, 1)
	}
	t.Logf("%d refused requests are %d lines", floods, lines)
	if lines == 0 || lines > 20 || counted != floods {
		t.Errorf("%d lines count %d requests, want all %d in a few lines", lines, counted, floods)
	}
	if r, err := audit.Verify(context.Background(), path); err != nil || !r.OK || r.Status != audit.Whole {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A tenant that fills its own chains removes no line of the operator or of another tenant. The
// verification reports the tenant's own loss.
func TestATenantFillsItsOwnAuditLogOnly(t *testing.T) {
	b, path, finish := audited(t)
	acme := b.newKey(keys.Spec{Name: "a", Tenant: "acme", Scopes: principal.All})
	evil := b.newKey(keys.Spec{Name: "e", Tenant: "evil", Scopes: principal.All})
	b.do("POST", "/v1/keys", `{"name":"made","tenant":"evil"}`)
	b.with(acme, "DELETE", "/v1/sandboxes/sb-1", "")
	b.with(evil, "PUT", "/v1/snapshots/none/pool", `{"size":0}`)
	for range 1500 {
		b.with(evil, "DELETE", "/v1/sandboxes/sb-1", strings.Repeat("x", 300))
	}
	finish()
	if got := auditLines(t, path, audit.Filter{Action: "key.create"}); len(got) != 1 {
		t.Errorf("the operator has %d lines of key.create left, want 1", len(got))
	}
	if got := auditLines(t, path, audit.Filter{Tenant: "acme"}); len(got) != 1 {
		t.Errorf("the other tenant has %d lines left, want 1", len(got))
	}
	r, err := audit.Verify(context.Background(), path)
	if err != nil || !r.OK || r.Status != audit.Whole {
		t.Errorf("got %+v, %v", r, err)
	}
	dropped := false
	for _, c := range r.Chains {
		dropped = dropped || c.Chain == "tenant-evil.activity" && c.Dropped > 0 && c.Since != nil
	}
	if !dropped {
		t.Errorf("no chain reports that lines were dropped: %+v", r.Chains)
	}
}

// Without a valid credential a line has no tenant and no key, and names the credential as a claim.
func TestAnUnauthenticatedRequestIsAnonymous(t *testing.T) {
	b := newBench(t)
	for shown, claim := range map[string]string{
		"": "", "e2b_" + strings.Repeat("0", 40): "key", strings.Repeat("y", 5000): "token",
	} {
		b.audit.Reset()
		b.with(shown, "DELETE", "/v1/snapshots/py", "")
		e := b.lines()[0]
		if !e.Anonymous || e.Principal != "anonymous" || e.Claim != claim || e.Source != "192.0.2.1" || e.Tenant+e.Key != "" {
			t.Errorf("with %.20q: got %+v", shown, e)
		}
	}
	b.audit.Reset()
	b.do("GET", "/version", "")
	if e := b.lines()[0]; e.Anonymous || e.Principal != "token" || e.Source+e.Claim != "" {
		t.Errorf("with the token: got %+v", e)
	}
	limited := b.newKey(keys.Spec{Name: "slow", Tenant: "acme", Scopes: principal.All, Quotas: keys.Quotas{RequestsPerSecond: 1}})
	code := 0
	for range 5 {
		b.audit.Reset()
		if code = b.with(limited, "GET", "/v1/sandboxes", "").Code; code == 429 {
			break
		}
	}
	if e := b.lines()[0]; code != 429 || e.Anonymous || e.Tenant != "acme" || e.KeyName != "slow" {
		t.Errorf("over its rate (%d): got %+v", code, e)
	}
}
