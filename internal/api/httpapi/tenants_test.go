package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
)

// tenants is a bench with two tenants that do not trust each other. The operator has the snapshots
// py, which is public, and private.
type tenants struct {
	*bench
	acme, evil string // texts of keys with all rights of a tenant
	sandbox    string // acme's
	texts      []string
}

func newTenants(t testing.TB) *tenants { return tenantsOf(t, newBench(t)) }

func tenantsOf(t testing.TB, of *bench) *tenants {
	b := &tenants{bench: of}
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"private","image":"python-numpy"}`), 201)
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/py/public", `{"public":true}`), 200)
	b.acme, b.evil = b.key(keys.Spec{Name: "a", Tenant: "acme"}), b.key(keys.Spec{Name: "e", Tenant: "evil"})
	into[api.SnapshotInfo](t, b.as(b.acme, "POST", "/v1/snapshots", `{"tag":"base","image":"python-numpy"}`), 201)
	b.sandbox = into[[]api.SandboxInfo](t, b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"base"}`), 201)[0].ID
	return b
}

// key makes a key and returns its text. Without given scopes it has all of them.
func (b *tenants) key(s keys.Spec) string {
	b.t.Helper()
	if s.Scopes == 0 {
		s.Scopes = principal.All
	}
	_, text, err := b.keys.Create(s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.texts = append(b.texts, text)
	return text
}

// as sends a request with a key.
func (b *tenants) as(text, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-API-KEY", text)
	if strings.HasSuffix(path, "/connect") {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", api.UpgradeTCP)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// bodyFor returns a valid body for a route, with a snapshot.
func bodyFor(route, tag string) string {
	switch route {
	case "POST /v1/snapshots":
		return fmt.Sprintf(`{"tag":"new","from":%q,"exec":["true"]}`, tag)
	case "POST /v1/sandboxes":
		return fmt.Sprintf(`{"snapshot_tag":%q}`, tag)
	case "POST /v1/sandboxes/{id}/rollback":
		return fmt.Sprintf(`{"snapshot_tag":%q}`, tag)
	case "POST /v1/snapshots/{tag}/compact":
		return `{"to":"copy"}`
	case "POST /v1/snapshots/{tag}/rename":
		return `{"to":"renamed"}`
	case "PUT /v1/snapshots/{tag}/pool":
		return `{"size":1}`
	case "PUT /v1/snapshots/{tag}/public":
		return `{"public":true}`
	case "PUT /v1/sandboxes/{id}/network":
		return `{"net":"none"}`
	case "PATCH /v1/sandboxes/{id}/labels", "PATCH /v1/snapshots/{tag}/labels":
		return `{"set":{"a":"b"}}`
	case "PATCH /v1/sandboxes/{id}/life":
		return `{"ttl_secs":60}`
	case "POST /v1/sandboxes/{id}/exec":
		return `{"args":["true"]}`
	case "PUT /v1/sandboxes/{id}/services/{service}":
		return `{"command":["true"]}`
	case "POST /v1/sandboxes/{id}/services/{service}":
		return `{"action":"stop"}`
	case "POST /v1/sandboxes/{id}/eval":
		return `{"code":"1"}`
	case "POST /v1/sandboxes/{id}/merge":
		return fmt.Sprintf(`{"theirs":%q}`, tag)
	case "POST /v1/sandboxes/keep":
		return fmt.Sprintf(`{"of":%q,"best":1,"file":"/score"}`, tag)
	case "POST /v1/workspaces":
		return fmt.Sprintf(`{"name":"desk","snapshot_tag":%q}`, tag)
	case "POST /v1/keys":
		return `{"name":"more","scopes":["read"]}`
	}
	return ""
}

func pathFor(route, id, tag string) (method, path string) {
	method, path, _ = strings.Cut(route, " ")
	return method, strings.NewReplacer("{id}", id, "{tag}", tag, "{digest}", "sha256:"+strings.Repeat("0", 64), "{other}", tag, "{port}", "80", "{path}", "health",
		"{workspace}", tag, "{name}", "python-numpy", "{key}", "k000000000000", "{secret}", "NONE", "{service}", "none", "{volume}", "none", "{network}", "none").Replace(path)
}

// about reports whether a route names an object in its path or its body. Secrets have names within their tenant, so a
// name leads to no object of another.
func about(route string) bool {
	if route == "PUT /v1/snapshots/{tag}" || route == "POST /v1/snapshots/{tag}/copy" {
		return false // the tag of a new snapshot, which begins with the tenant's name
	}
	return strings.Contains(route, "{id}") || strings.Contains(route, "{tag}") || route == "POST /v1/snapshots" ||
		route == "POST /v1/sandboxes" || route == "POST /v1/sandboxes/keep" || route == "POST /v1/workspaces" || strings.Contains(route, "{workspace}") || strings.Contains(route, "{key}")
}

func TestEveryRouteHasItsScope(t *testing.T) {
	b := newBench(t)
	table := httpapi.Needs()
	for _, route := range b.server.Routes() {
		if _, ok := table[route]; !ok {
			t.Errorf("%s has no row: nobody can use it", route)
		}
		delete(table, route)
	}
	for route := range table {
		t.Errorf("%s has a row and is no route", route)
	}
}

// requestID differs in each answer.
var requestID = regexp.MustCompile(`,"request_id":"[0-9a-f]+"`)

// Objects of another tenant are answered like missing ones, on every route and with any scopes of
// the key.
func TestAnotherTenantsThingsAreNotThere(t *testing.T) {
	b := newTenants(t)
	into[api.BranchResult](t, b.as(b.acme, "POST", "/v1/sandboxes/"+b.sandbox+"/branch", `{"tag":"later"}`), 201)
	into[api.WorkspaceInfo](t, b.as(b.acme, "POST", "/v1/workspaces", `{"name":"base","snapshot_tag":"base"}`), 201)
	seen := 0
	for _, scopes := range []principal.Scopes{principal.All, principal.Read, principal.Run, principal.Fork, principal.Admin} {
		text := b.key(keys.Spec{Name: fmt.Sprintf("probe-%d", scopes), Tenant: "evil", Scopes: scopes})
		for _, route := range b.server.Routes() {
			if !about(route) {
				continue
			}
			if !strings.Contains(route, "{") && !scopes.Has(httpapi.Needs()[route]) {
				continue // its path names no object, so a 403 reveals nothing
			}
			for _, tag := range []string{"acme-base", "base", "private", "acme-later"} {
				method, path := pathFor(route, b.sandbox, tag)
				w := b.as(text, method, path, bodyFor(route, tag))
				method, guessed := pathFor(route, "sb-0badc0de-0001", "never-was")
				g := b.as(text, method, guessed, bodyFor(route, "never-was"))
				if w.Code != 404 || g.Code != 404 {
					t.Errorf("%s with scopes %s: another's is %d %s; a guess is %d %s", route, scopes, w.Code, w.Body, g.Code, g.Body)
				}
				same := strings.NewReplacer(b.sandbox, "X", "sb-0badc0de-0001", "X", tag, "Y", "never-was", "Y")
				got, want := same.Replace(w.Body.String()), same.Replace(g.Body.String())
				if got, want = requestID.ReplaceAllString(got, ""), requestID.ReplaceAllString(want, ""); got != want {
					t.Errorf("%s: another's is answered %s, a guess %s", route, got, want)
				}
				seen++
			}
		}
	}
	if seen < 400 {
		t.Errorf("only %d requests were made", seen)
	}
	b.unharmed()
}

// unharmed checks that the objects of acme and of the operator are unchanged.
func (b *tenants) unharmed() {
	b.t.Helper()
	into[api.SandboxInfo](b.t, b.as(b.acme, "GET", "/v1/sandboxes/"+b.sandbox, ""), 200)
	into[api.SnapshotDetail](b.t, b.as(b.acme, "GET", "/v1/snapshots/base/info", ""), 200)
	into[api.SnapshotDetail](b.t, b.do("GET", "/v1/snapshots/private/info", ""), 200)
}

func TestListsHaveNothingOfOthers(t *testing.T) {
	b := newTenants(t)
	into[api.BranchResult](t, b.as(b.acme, "POST", "/v1/sandboxes/"+b.sandbox+"/branch", `{"n":1}`), 201)
	acmes := into[[]api.SandboxInfo](t, b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)
	desk := into[api.WorkspaceInfo](t, b.as(b.acme, "POST", "/v1/workspaces", `{"name":"desk","snapshot_tag":"py"}`), 201)
	if w := b.as(b.acme, "PUT", "/v1/snapshots/base/pool", `{"size":3}`); w.Code != 204 {
		t.Errorf("a pool: %d %s", w.Code, w.Body)
	}
	for _, route := range b.server.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if method != "GET" || strings.Contains(path, "{") && path != "/v1/snapshots/{tag}/info" || path == "/openapi.json" {
			continue
		}
		path = strings.ReplaceAll(path, "{tag}", "py")
		w := b.as(b.evil, "GET", path, "")
		for _, secret := range []string{"acme", b.sandbox, acmes[0].ID, "private", desk.LiveSandboxID, "desk"} {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("GET %s tells of %s: %s", path, secret, w.Body)
			}
		}
	}
	if w := b.as(b.acme, "DELETE", "/v1/workspaces/"+desk.Name, ""); w.Code != 204 {
		t.Errorf("workspace %s: %d %s", desk.Name, w.Code, w.Body)
	}
	own := into[[]api.SnapshotInfo](t, b.as(b.acme, "GET", "/v1/snapshots", ""), 200)
	var tags []string
	for _, s := range own {
		tags = append(tags, s.Tag)
	}
	if len(tags) != 3 || !slices.Contains(tags, "acme-base") || !slices.Contains(tags, "py") {
		t.Errorf("acme's list is %q", tags)
	}
	if all := into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200); len(all) != 3 || all[0].Owner != "acme" {
		t.Errorf("the operator's list is %+v", all)
	}
	if rs := into[[]api.Receipt](t, b.as(b.acme, "GET", "/v1/receipts", ""), 200); len(rs) == 0 {
		t.Error("acme has no receipts")
	}
	wantError(t, b.as(b.evil, "GET", "/metrics", ""), api.CodeForbidden)
}

// A missing scope is reported only for the tenant's own objects. The test above covers 404 for
// others' objects.
func TestScopesOnOnesOwn(t *testing.T) {
	for _, scope := range []principal.Scopes{principal.Read, principal.Run, principal.Fork, principal.Admin} {
		b := newTenants(t)
		into[api.WorkspaceInfo](t, b.as(b.acme, "POST", "/v1/workspaces", `{"name":"base","snapshot_tag":"base"}`), 201)
		text := b.key(keys.Spec{Name: "own", Tenant: "acme", Scopes: scope})
		for _, route := range b.server.Routes() {
			need := httpapi.Needs()[route]
			if strings.Contains(route, "{key}") || scope.Has(need) && !httpapi.OperatorOnly(route) {
				continue // allowed: other tests check the result
			}
			method, path := pathFor(route, b.sandbox, "base")
			w := b.as(text, method, path, bodyFor(route, "base"))
			if method == "HEAD" {
				if w.Code != 403 {
					t.Errorf("%s with %s: %d", route, scope, w.Code)
				}
				continue
			}
			if e := wantError(t, w, api.CodeForbidden); e.Reason != api.ReasonScopeMissing && e.Reason != api.ReasonOperatorOnly {
				t.Errorf("%s with %s: %+v", route, scope, e)
			}
		}
		b.unharmed()
	}
}

func TestKeysThatOpenNothing(t *testing.T) {
	b := newTenants(t)
	gone := b.key(keys.Spec{Name: "gone", Tenant: "acme"})
	for _, k := range b.keys.List() {
		if k.Name == "gone" {
			if _, err := b.keys.Revoke(k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	unknown := keys.Prefix + strings.Repeat("ab", 20)
	var bodies []string
	for _, text := range []string{gone, unknown} {
		for _, route := range b.server.Routes() {
			method, path := pathFor(route, b.sandbox, "base")
			if w := b.as(text, method, path, bodyFor(route, "base")); w.Code != 401 && path != "/healthz" && path != "/readyz" {
				t.Errorf("%s: %d %s", route, w.Code, w.Body)
			}
		}
		bodies = append(bodies, requestID.ReplaceAllString(b.as(text, "GET", "/v1/sandboxes", "").Body.String(), ""))
	}
	if bodies[0] != bodies[1] {
		t.Errorf("a revoked key is told from an unknown one: %q", bodies)
	}
}

func TestHowAKeyIsShown(t *testing.T) {
	b := newTenants(t)
	for _, c := range []struct {
		name   string
		header http.Header
		status int
	}{
		{"as a header of its own", http.Header{"X-Api-Key": {b.acme}}, 200},
		{"as a bearer", http.Header{"Authorization": {"Bearer " + b.acme}}, 200},
		{"both ways", http.Header{"Authorization": {"Bearer " + b.acme}, "X-Api-Key": {b.acme}}, 200},
		{"the token as a key", http.Header{"X-Api-Key": {token}}, 200},
		{"two clients'", http.Header{"Authorization": {"Bearer " + b.acme}, "X-Api-Key": {b.evil}}, 401},
		{"a key and the token", http.Header{"Authorization": {"Bearer " + token}, "X-Api-Key": {b.evil}}, 401},
		{"a right and a wrong one", http.Header{"Authorization": {"Bearer " + b.acme}, "X-Api-Key": {"x"}}, 401},
		{"a wrong and a right one", http.Header{"Authorization": {"Basic x"}, "X-Api-Key": {b.acme}}, 401},
		{"twice", http.Header{"X-Api-Key": {b.acme, b.acme}}, 401},
		{"two bearers", http.Header{"Authorization": {"Bearer " + b.acme, "Bearer " + token}}, 401},
		{"empty", http.Header{"X-Api-Key": {""}}, 401},
		{"in capitals", http.Header{"X-Api-Key": {strings.ToUpper(b.acme)}}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
			r.Header = c.header
			w := httptest.NewRecorder()
			b.h.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
		})
	}
}

func TestTagsOfTenantsDoNotMeet(t *testing.T) {
	b := newTenants(t)
	// The same name, and one that looks like another tenant's.
	evils := into[api.SnapshotInfo](t, b.as(b.evil, "POST", "/v1/snapshots", `{"tag":"base","image":"python-numpy"}`), 201)
	looks := into[api.SnapshotInfo](t, b.as(b.evil, "POST", "/v1/snapshots", `{"tag":"acme-base","image":"python-numpy"}`), 201)
	if evils.Tag != "evil-base" || looks.Tag != "evil-acme-base" || evils.Owner != "evil" {
		t.Errorf("tags %q and %q of %q", evils.Tag, looks.Tag, evils.Owner)
	}
	wantError(t, b.as(b.evil, "POST", "/v1/snapshots", `{"tag":"base","image":"python-numpy"}`), api.CodeConflict)
	long := `{"tag":"` + strings.Repeat("x", 62) + `","image":"python-numpy"}`
	wantError(t, b.as(b.evil, "POST", "/v1/snapshots", long), api.CodeInvalid)
	if w := b.as(b.evil, "DELETE", "/v1/snapshots/acme-base", ""); w.Code != 204 { // its own snapshot of that name
		t.Errorf("deleted: %d %s", w.Code, w.Body)
	}
	b.unharmed()
}

func TestAPublicSnapshot(t *testing.T) {
	b := newTenants(t)
	detail := into[api.SnapshotDetail](t, b.as(b.evil, "GET", "/v1/snapshots/py/info", ""), 200)
	if !detail.Public || detail.Dir != "" || len(detail.Sandboxes) != 0 {
		t.Errorf("it is shown as %+v", detail)
	}
	for route, body := range map[string]string{
		"DELETE /v1/snapshots/py": "", "POST /v1/snapshots/py/compact": `{"to":"mine"}`,
		"POST /v1/snapshots/py/rename": `{"to":"mine"}`, "PUT /v1/snapshots/py/pool": `{"size":2}`,
		"POST /v1/snapshots/py/verify": "", "PUT /v1/snapshots/py/public": `{"public":false}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		wantError(t, b.as(b.evil, method, path, body), api.CodeForbidden)
	}
	into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)
	// A public snapshot of acme that others use cannot be deleted. The error does not name them.
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/acme-base/public", `{"public":true}`), 200)
	sb := into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"acme-base"}`), 201)[0]
	into[api.BranchResult](t, b.as(b.evil, "POST", "/v1/sandboxes/"+sb.ID+"/branch", `{"tag":"on-it"}`), 201)
	for _, query := range []string{"", "?cascade=true"} {
		w := b.as(b.acme, "DELETE", "/v1/snapshots/base"+query, "")
		if wantError(t, w, api.CodeConflict); strings.Contains(w.Body.String(), "evil") || strings.Contains(w.Body.String(), sb.ID) {
			t.Errorf("told: %s", w.Body)
		}
	}
	if info := into[api.SnapshotDetail](t, b.as(b.acme, "GET", "/v1/snapshots/base/info", ""), 200); len(info.Dependents) != 0 || slices.Contains(info.Sandboxes, sb.ID) {
		t.Errorf("acme sees %v and %v", info.Dependents, info.Sandboxes)
	}
	// With other content it is not public any more.
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/py/public", `{"public":false}`), 200)
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), api.CodeNotFound)
}

func TestQuotas(t *testing.T) {
	b := newTenants(t)
	quota := func(q keys.Quotas) string {
		tenant := fmt.Sprintf("t%d", len(b.texts))
		return b.key(keys.Spec{Name: "q", Tenant: tenant, Quotas: q})
	}
	over := func(w *httptest.ResponseRecorder, name string) {
		t.Helper()
		e := wantError(t, w, api.CodeQuota)
		if e.Details["quota"] != name || w.Header().Get("Retry-After") == "" || w.Header().Get("Retry-After") == "0" {
			t.Errorf("%+v, Retry-After %q", e, w.Header().Get("Retry-After"))
		}
	}
	const fork = `{"snapshot_tag":"py","n":2}`
	for name, q := range map[string]keys.Quotas{
		"sandboxes": {Sandboxes: 3}, "memory_mib": {MemoryMiB: 3 * 512}, "forks_per_minute": {ForksPerMinute: 3},
	} {
		text := quota(q)
		first := b.as(text, "POST", "/v1/sandboxes", fork)
		if first.Code != 201 {
			t.Fatalf("%s: %d %s", name, first.Code, first.Body)
		}
		for b.as(text, "POST", "/v1/sandboxes", fork).Code == 201 {
			if name == "sandboxes" || name == "forks_per_minute" {
				t.Errorf("%s: a second fork went through", name)
				break
			}
		}
		over(b.as(text, "POST", "/v1/sandboxes", fork), name)
	}
	text := quota(keys.Quotas{Sandboxes: 1})
	made := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","guest_fork":true}`), 201)
	if root, err := b.engine.Get(made[0].ID); err != nil || root.Kin.Key == "" {
		t.Errorf("whose quotas its guest's forks count in is not known: %+v, %v", root.Kin, err)
	}
	text = quota(keys.Quotas{DiskMiB: 1})
	into[api.SnapshotInfo](t, b.as(text, "POST", "/v1/snapshots", `{"tag":"one","image":"python-numpy"}`), 201)
	over(b.as(text, "POST", "/v1/snapshots", `{"tag":"two","image":"python-numpy"}`), "disk_mib")
	text = quota(keys.Quotas{RequestsPerSecond: 2})
	codes := map[int]int{}
	for range 20 {
		codes[b.as(text, "GET", "/version", "").Code]++
	}
	if codes[200] < 2 || codes[429] == 0 {
		t.Errorf("requests ended with %v", codes)
	}
}

// The overlays of sandboxes count in the disk quota, for forks and snapshots alike.
func TestTheDiskQuotaCountsSandboxesDisks(t *testing.T) {
	b := newTenants(t)
	text := b.key(keys.Spec{Name: "q", Tenant: "disks", Quotas: keys.Quotas{DiskMiB: 10}})
	b.engine.DiskWritten = 6 << 20
	sb := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
	into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2}`), 201)
	b.engine.DiskWritten = 11 << 20
	eventually := time.Now().Add(10 * time.Second) // it is counted once a second
	var w *httptest.ResponseRecorder
	for w = b.as(text, "POST", "/v1/sandboxes/"+sb+"/branch", `{"tag":"x1"}`); w.Code == 201 && time.Now().Before(eventually); {
		w = b.as(text, "POST", "/v1/sandboxes/"+sb+"/branch", `{"tag":"x2"}`)
	}
	if e := wantError(t, w, api.CodeQuota); e.Details["quota"] != "disk_mib" {
		t.Errorf("got %+v", e)
	}
	wantError(t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), api.CodeQuota)
	into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)
}

// Guest forks count in the quotas of the key that made the root of the tree.
func TestQuotasOfGuestsForks(t *testing.T) {
	b := newTenants(t)
	forker := func(tenant string, q keys.Quotas) (sandbox.Info, string) {
		text := b.key(keys.Spec{Name: "g", Tenant: tenant, Quotas: q})
		made := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","guest_fork":true}`), 201)
		info, err := b.engine.Get(made[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return info, text
	}
	for tenant, c := range map[string]struct {
		q    keys.Quotas
		says string
	}{"few": {keys.Quotas{Sandboxes: 3}, "quota is 3"}, "small": {keys.Quotas{MemoryMiB: 3 * 256}, "memory"},
		"slow": {keys.Quotas{ForksPerMinute: 3}, "3 children per minute"}} {
		of, text := forker(tenant, c.q)
		child := of // as its guest would make it
		child.Kin = of.Kin.Child(of.ID, "token")
		release, err := b.server.AdmitGuest(t.Context(), child, 2)
		if err != nil {
			t.Fatalf("%s: %v", tenant, err)
		}
		if _, err := b.server.AdmitGuest(t.Context(), of, 1); !errors.Is(err, sandbox.ErrQuota) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: one more: %v", tenant, err)
		}
		wantError(t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), api.CodeQuota)
		release()
		if _, err := b.server.AdmitGuest(t.Context(), of, 2); (err == nil) != (tenant != "slow") {
			t.Errorf("%s: when those have come to nothing: %v", tenant, err)
		}
	}
	of, _ := forker("gone", keys.Quotas{Sandboxes: 3})
	if _, err := b.keys.Revoke(of.Kin.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := b.server.AdmitGuest(t.Context(), of, 1); !errors.Is(err, sandbox.ErrForbidden) {
		t.Errorf("with a key that is revoked: %v", err)
	}
	free, err := b.engine.Get(b.sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.server.AdmitGuest(t.Context(), free, 100); err != nil {
		t.Errorf("without a key: %v", err)
	}
}

// Concurrent requests get no more than the quota, and no request gets a 500.
func TestAFloodGetsNoMoreThanTheQuota(t *testing.T) {
	b := newTenants(t)
	text := b.key(keys.Spec{Name: "q", Tenant: "flood", Quotas: keys.Quotas{Sandboxes: 5}})
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 50 {
		wg.Go(func() {
			w := b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	wg.Wait()
	if codes[201] == 0 || codes[201] > 5 || codes[201]+codes[429] != 50 {
		t.Errorf("%v", codes)
	}
}

func TestATenantsAdminStaysInItsTenant(t *testing.T) {
	b := newTenants(t)
	made := into[api.NewKey](t, b.as(b.evil, "POST", "/v1/keys", `{"name":"sub","scopes":["read"]}`), 201)
	if made.Tenant != "evil" || !keys.Looks(made.Text) {
		t.Errorf("made %+v", made.Key)
	}
	into[[]api.SandboxInfo](t, b.as(made.Text, "GET", "/v1/sandboxes", ""), 200)
	wantError(t, b.as(b.evil, "POST", "/v1/keys", `{"name":"sub2","scopes":["read"],"tenant":"acme"}`), api.CodeForbidden)
	wantError(t, b.as(b.evil, "POST", "/v1/keys", `{"name":"sub2","scopes":["read"],"quotas":{"sandboxes":9}}`), api.CodeForbidden)
	admin := b.key(keys.Spec{Name: "admin", Tenant: "evil", Scopes: principal.Admin})
	wantError(t, b.as(admin, "POST", "/v1/keys", `{"name":"sub3","scopes":["fork"]}`), api.CodeForbidden)
	list := into[[]api.Key](t, b.as(b.evil, "GET", "/v1/keys", ""), 200)
	var strong string
	for _, k := range list {
		if k.Tenant != "evil" {
			t.Errorf("listed: %+v", k)
		}
		if k.Name == "e" {
			strong = k.ID
		}
	}
	wantError(t, b.as(admin, "POST", "/v1/keys/"+strong+"/rotate", ""), api.CodeForbidden)
	for _, k := range b.keys.List() {
		if k.Tenant == "acme" {
			wantError(t, b.as(b.evil, "DELETE", "/v1/keys/"+k.ID, ""), api.CodeNotFound)
			wantError(t, b.as(b.evil, "POST", "/v1/keys/"+k.ID+"/rotate", ""), api.CodeNotFound)
		}
	}
	turned := into[api.NewKey](t, b.as(b.evil, "POST", "/v1/keys/"+made.ID+"/rotate", `{"grace_secs":60}`), 200)
	into[[]api.SandboxInfo](t, b.as(turned.Text, "GET", "/v1/sandboxes", ""), 200)
	into[api.Key](t, b.as(b.evil, "DELETE", "/v1/keys/"+made.ID, ""), 200)
	wantError(t, b.as(turned.Text, "GET", "/v1/sandboxes", ""), api.CodeUnauthorized)
	wantError(t, b.as(made.Text, "GET", "/v1/sandboxes", ""), api.CodeUnauthorized)
}

func TestWhatIsTheHostsIsTheOperators(t *testing.T) {
	b := newTenants(t)
	for route, body := range map[string]string{
		"POST /v1/store/gc":            `{}`,
		"DELETE /v1/images/broken":     "",
		"PUT /v1/images/other":         "",
		"GET /metrics":                 "",
		"POST /v1/snapshots#paths":     `{"tag":"x","kernel":"/etc/shadow","rootfs":"/etc/passwd"}`,
		"POST /v1/snapshots#missing":   `{"tag":"x","kernel":"/nowhere","rootfs":"/nowhere"}`,
		"POST /v1/sandboxes#tap":       `{"snapshot_tag":"py","network":{"tap":"tap0"}}`,
		"POST /v1/snapshots#derivetap": `{"tag":"x","image":"python-numpy","network":{"tap":"tap0"}}`,
	} {
		method, path, _ := strings.Cut(strings.Split(route, "#")[0], " ")
		w := b.as(b.evil, method, path, body)
		if e := wantError(t, w, api.CodeForbidden); e.Reason != api.ReasonOperatorOnly {
			t.Errorf("%s: %+v", route, e)
		}
	}
	into[[]api.Image](t, b.as(b.evil, "GET", "/v1/images", ""), 200)
}

// No output and no answer of the daemon contains the text of a key or a token.
func TestSecretsAreNowhere(t *testing.T) {
	b := newTenants(t)
	for _, route := range b.server.Routes() {
		for _, text := range []string{b.acme, b.evil, token, keys.Prefix + strings.Repeat("cd", 20)} {
			method, path := pathFor(route, b.sandbox, "base")
			if text == b.acme && strings.HasPrefix(route, "DELETE") {
				continue
			}
			w := b.as(text, method, path, bodyFor(route, "base"))
			if strings.Contains(w.Body.String()+fmt.Sprint(w.Header()), text) {
				t.Errorf("%s answers with the token that it was shown", route)
			}
		}
	}
	receipts, err := json.Marshal(into[[]api.Receipt](t, b.do("GET", "/v1/receipts", ""), 200))
	if err != nil {
		t.Fatal(err)
	}
	metrics := b.do("GET", "/metrics", "").Body.String()
	places := map[string]string{"audit log": b.audit.String(), "log": b.log.String(), "receipts": string(receipts), "metrics": metrics}
	if len(places["audit log"]) == 0 || len(places["log"]) == 0 {
		t.Error("nothing was logged: the test looks at nothing")
	}
	for where, text := range places {
		for _, secret := range append([]string{token, strings.Repeat("cd", 20)}, b.texts...) {
			if strings.Contains(text, strings.TrimPrefix(secret, keys.Prefix)) {
				t.Errorf("the %s has a secret in it", where)
			}
		}
	}
	if !strings.Contains(places["audit log"], `"principal":"key k`) {
		t.Error("the audit log does not say which key it was")
	}
}

// FuzzAuthorization checks that random credentials give no access and cause no failure.
func FuzzAuthorization(f *testing.F) {
	b := newTenants(f)
	for _, seed := range []string{"", "Bearer ", "Bearer x", "bearer e2b_", "Basic Og==", token, keys.Prefix + strings.Repeat("0", 40), "\x00", "Bearer \xff"} {
		f.Add(seed, "")
		f.Add("", seed)
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, auth, key string) {
		r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
		r.Header["Authorization"], r.Header["X-Api-Key"] = []string{auth}, []string{key}
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		if right := strings.Contains(auth+key, token) || strings.Contains(auth+key, b.acme[4:]) || strings.Contains(auth+key, b.evil[4:]); w.Code != 401 && !right {
			t.Errorf("%q and %q: %d", auth, key, w.Code)
		}
	})
}

func TestWhatIsPublicSurvivesTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "published.json")
	for name, content := range map[string]string{"no JSON": "x", "another format": `{"format":2}`, "no tag": `{"format":1,"tags":{"a/b":"x"}}`, "no snapshot": `{"format":1,"tags":{"a":""}}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := tenancy.OpenPublished(path); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// BenchmarkRequest compares requests of the operator and of a tenant.
func BenchmarkRequest(b *testing.B) {
	ten := newTenants(b)
	for _, name := range slices.Sorted(maps.Keys(map[string]int{"get": 0, "list": 0})) {
		path := map[string]string{"get": "/v1/sandboxes/" + ten.sandbox, "list": "/v1/sandboxes"}[name]
		for who, text := range map[string]string{"token": token, "key": ten.acme} {
			b.Run(name+"/"+who, func(b *testing.B) {
				for b.Loop() {
					if w := ten.as(text, "GET", path, ""); w.Code != 200 {
						b.Fatal(w.Body)
					}
				}
			})
		}
	}
}

// TestPortsOfATenantArePrivate: other tenants could otherwise reach them with an ID alone.
func TestPortsOfATenantArePrivate(t *testing.T) {
	b := newTenants(t)
	for _, c := range []struct {
		name, key, body string
		private         bool
	}{
		{"a tenant", b.acme, `{"snapshot_tag":"base"}`, true},
		{"a tenant that opens them", b.acme, `{"snapshot_tag":"base","private_ports":false}`, false},
		{"the operator's key", b.key(keys.Spec{Name: "o"}), `{"snapshot_tag":"py"}`, false},
		{"the operator's key that closes them", b.key(keys.Spec{Name: "p"}), `{"snapshot_tag":"py","private_ports":true}`, true},
	} {
		sb := into[[]api.SandboxInfo](t, b.as(c.key, "POST", "/v1/sandboxes", c.body), 201)[0]
		if sb.PrivatePorts != c.private || (sb.TrafficToken != "") != c.private {
			t.Errorf("%s: private_ports is %v, with a token: %v", c.name, sb.PrivatePorts, sb.TrafficToken != "")
		}
	}
}
