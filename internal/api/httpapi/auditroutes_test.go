package httpapi_test

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/audit"
)

func (b *bench) now() time.Time { return b.engine.Now }

func TestTheAuditLogIsRead(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := audit.Open(audit.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	l.Add(audit.Entry{Action: "sandbox.fork", Result: audit.OK, Tenant: "acme"})
	l.Add(audit.Entry{Action: "sandbox.read", Result: audit.Failed, Read: true})
	if err := l.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	h := b.asTenants(httpapi.Options{AuditFile: path})
	get := func(path, tenant string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set(tenantHeader, tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for query, want := range map[string]string{
		"":                            "audit.opened sandbox.fork sandbox.read audit.closed",
		"?action=sandbox.":            "sandbox.fork sandbox.read",
		"?tenant=acme":                "sandbox.fork",
		"?result=failed":              "sandbox.read",
		"?changes=true&limit=2":       "sandbox.fork audit.closed",
		"?since=2999-01-01T00:00:00Z": "",
		"?sandbox=sb-none":            "",
	} {
		w := get("/v1/audit"+query, "")
		var got []string
		for line := range strings.Lines(w.Body.String()) {
			e, err := audit.Decode([]byte(strings.TrimSpace(line)))
			if err != nil {
				t.Fatal(err)
			}
			if e.Action != audit.ActionChain {
				got = append(got, e.Action)
			}
		}
		if w.Code != 200 || strings.Join(got, " ") != want {
			t.Errorf("%q: %d, %v", query, w.Code, got)
		}
	}
	for _, bad := range []string{"since=x", "result=x", "limit=x", "limit=-1", "limit=9999999", "follow=x", "changes=x"} {
		wantError(t, get("/v1/audit?"+bad, ""), api.CodeInvalid)
	}
	if r := into[api.AuditReport](t, get("/v1/audit/verify", ""), 200); !r.OK || r.Status != "whole" ||
		r.Lines != 6 || len(r.Chains) != 3 {
		t.Errorf("got %+v", r)
	}
	if r := into[api.AuditReport](t, get("/v1/audit/verify?head=2:"+audit.Zero, ""), 200); r.OK || len(r.Problems) != 1 {
		t.Errorf("got %+v", r)
	}
	wantError(t, get("/v1/audit/verify?head=x", ""), api.CodeInvalid)
	for _, path := range []string{"/v1/audit", "/v1/audit/verify"} {
		wantError(t, get(path, "acme"), api.CodeForbidden)
		wantError(t, b.do("GET", path, ""), api.CodeUnsupported) // this daemon has no log
	}
}
