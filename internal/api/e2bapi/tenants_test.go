package e2bapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/store/receipt"
)

// daemon is E2B's API and the native one, as the daemon serves them, with keys and an audit log.
// The operator has the snapshots open, which is public, and hidden. acme has acme-mine and a
// sandbox.
type daemon struct {
	*bench
	keys       *keys.Store
	dir        string // of the keys
	log        *lines
	acme, evil string // texts of keys with all rights of a tenant
	own        created
}

// lines collects the daemon's log and its audit log.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	audit []audit.Entry
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) Add(e audit.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.audit = append(l.audit, e)
}

func (l *lines) Stats() audit.Stats { return audit.Stats{} }

func (l *lines) entries() []audit.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.audit)
}

func newDaemon(t testing.TB, change ...func(*e2bapi.Options)) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), log: &lines{}}
	var err error
	if d.keys, err = keys.Open(keys.Config{Path: filepath.Join(d.dir, "keys.json")}); err != nil {
		t.Fatal(err)
	}
	published, err := tenancy.OpenPublished(filepath.Join(d.dir, "published.json"))
	if err != nil {
		t.Fatal(err)
	}
	var server *httpapi.Server
	access := auth.Access{Token: apiKey, Keys: d.keys}
	log := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	made, _, err := build.OpenStore(filepath.Join(d.dir, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	d.bench = newBench(t, func(o *e2bapi.Options) {
		o.Builds = made
		o.View = func(ctx context.Context) e2bapi.Engine { return e2bapi.EngineFor(server.View(ctx)) }
		o.Note = func(ctx context.Context, a e2bapi.Act) { requestinfo.NoteAct(ctx, requestinfo.Act(a)) }
		o.Authenticate = func(r *http.Request) (context.Context, error) { return server.Authenticator(access)(r) }
		o.Log = log
		for _, f := range change {
			f(o)
		}
	})
	server = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(native{d.engine}), Ingress: d.h, Keys: d.keys, Published: published,
		Audit: d.log, Log: log})
	d.server = httptest.NewServer(server.Handler(access))
	t.Cleanup(d.server.Close)
	for _, tag := range []string{"open", "hidden"} {
		if _, err := d.engine.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: tag, Image: "base"},
			func(sandbox.Step) {}); err != nil {
			t.Fatal(err)
		}
	}
	want[any](t, d.do("PUT", "/v1/snapshots/open/public", `{"public":true}`), 200)
	d.acme, d.evil = d.key(keys.Spec{Name: "a", Tenant: "acme"}), d.key(keys.Spec{Name: "e", Tenant: "evil"})
	d.own = want[created](t, d.as(d.acme, "POST", "/v2/sandboxes", `{"templateID":"open","envVars":{"S":"planted-env"}}`), 201)
	want[any](t, d.as(d.acme, "POST", "/sandboxes/"+d.own.SandboxID+"/snapshots", `{"name":"mine"}`), 201)
	return d
}

// key makes a key and returns its text. Without given scopes it has all of them.
func (d *daemon) key(s keys.Spec) string {
	d.t.Helper()
	if s.Scopes == 0 {
		s.Scopes = principal.All
	}
	_, text, err := d.keys.Create(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

func (d *daemon) as(key, method, path, body string) answer {
	d.t.Helper()
	return d.do(method, path, body, "X-API-KEY", key)
}

// request returns a request to a route about a sandbox, or about a template.
func request(pattern, id, tag string) (method, path, body string) {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		method, path = "GET", pattern
	}
	name := id
	if strings.Contains(path, "/templates/") {
		name = tag
	}
	path = strings.NewReplacer("{id}", name, "{part}", "tags", "{build}", "b", "{hash}", "h").Replace(path)
	switch {
	case strings.HasSuffix(pattern, "POST /sandboxes"), strings.HasSuffix(pattern, "/v2/sandboxes") && method == "POST":
		body = fmt.Sprintf(`{"templateID":%q}`, tag)
	case strings.HasSuffix(path, "/refreshes"):
		body = `{"duration":5}`
	case strings.HasSuffix(path, "/network"), strings.HasSuffix(path, "/snapshots") && method == "POST":
		body = `{}`
	case method == "POST":
		body = `{"timeout":100}`
	}
	return method, path, body
}

// about reports whether a route names an object in its path or its body.
func about(pattern string) bool {
	return strings.Contains(pattern, "/sandboxes/{id}") || strings.Contains(pattern, "/templates/{id}") ||
		pattern == "POST /sandboxes" || pattern == "POST /v2/sandboxes"
}

// Objects of another tenant or the operator are answered like missing ones, on every route and with
// any scopes of the key.
func TestAnotherTenantsThingsAreNotThere(t *testing.T) {
	d := newDaemon(t)
	seen := 0
	for _, scopes := range []principal.Scopes{principal.All, principal.Read, principal.Run, principal.Fork, principal.Admin} {
		text := d.key(keys.Spec{Name: fmt.Sprintf("probe-%d", scopes), Tenant: "evil", Scopes: scopes})
		for pattern, need := range d.h.Routes() {
			if !about(pattern) || need == 0 || !strings.Contains(pattern, "{") && !scopes.Has(need) {
				continue
			}
			for _, tag := range []string{"acme-mine", "hidden"} {
				guessed := strings.Repeat("z", len(tag))
				theirs := d.as3(text, pattern, d.own.SandboxID, tag)
				none := d.as3(text, pattern, "sb0123456789ab", guessed)
				masked := strings.NewReplacer(d.own.SandboxID, "ID", tag, "TAG").Replace(theirs.body)
				if none := strings.NewReplacer("sb0123456789ab", "ID", guessed, "TAG").Replace(none.body); none != masked {
					t.Errorf("%s with %s: %q, and of what never was %q", pattern, scopes, masked, none)
				}
				wantError(t, theirs, 404)
				wantError(t, none, 404)
				seen++
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d were tried", seen)
	}
	if _, err := d.engine.Get(sandbox.CanonicalID(d.own.SandboxID)); err != nil {
		t.Errorf("acme's sandbox: %v", err)
	}
}

// as3 sends the request of a route with a key.
func (d *daemon) as3(key, pattern, id, tag string) answer {
	method, path, body := request(pattern, id, tag)
	return d.as(key, method, path, body)
}

func TestKeysThatOpenNothing(t *testing.T) {
	d := newDaemon(t)
	revoked, expired := d.key(keys.Spec{Name: "r", Tenant: "acme"}), d.key(keys.Spec{Name: "x", Tenant: "acme",
		Expires: time.Now().Add(2 * time.Second)})
	for _, k := range d.keys.List() {
		if k.Name == "r" {
			if _, err := d.keys.Revoke(k.ID); err != nil {
				t.Fatal(err)
			}
		}
		for k.Name == "x" && k.Dead(time.Now()) == "" { // keys have a separate clock
			<-time.After(50 * time.Millisecond)
		}
	}
	never := "e2b_" + strings.Repeat("ab", 20)
	for pattern := range d.h.Routes() {
		first := ""
		for name, text := range map[string]string{"revoked": revoked, "expired": expired, "never made": never, "no key": "x"} {
			a := d.as3(text, pattern, d.own.SandboxID, "acme-mine")
			wantError(t, a, 401)
			if name == "no key" {
				continue
			}
			if first == "" {
				first = a.body
			}
			if a.body != first {
				t.Errorf("%s, %s: %s, others %s", pattern, name, a.body, first)
			}
		}
	}
}

// A key may use its own objects within its scopes. A refusal names the missing scope.
func TestEveryRouteHoldsItsScope(t *testing.T) {
	d := newDaemon(t)
	own := want[requested](t, d.as(d.acme, "POST", "/v3/templates", `{"name":"own"}`), 202)
	built := strings.NewReplacer("{id}/builds/{build}", own.TemplateID+"/builds/"+own.BuildID,
		"{id}/files/{hash}", own.TemplateID+"/files/"+strings.Repeat("ab", 32))
	for _, scope := range []principal.Scopes{principal.Read, principal.Run, principal.Fork, principal.Admin} {
		text := d.key(keys.Spec{Name: fmt.Sprintf("only-%d", scope), Tenant: "acme", Scopes: scope})
		for _, pattern := range slices.Sorted(maps.Keys(d.h.Routes())) {
			need := d.h.Routes()[pattern]
			if need == 0 || scope.Has(need) && strings.HasPrefix(pattern, "DELETE") {
				continue
			}
			if scope.Has(need) && (strings.Contains(pattern, "/secrets") || strings.Contains(pattern, "/volumes")) {
				continue // this daemon has no key for secrets, and no volumes
			}
			a := d.as3(text, built.Replace(pattern), d.own.SandboxID, "acme-mine")
			switch {
			case !scope.Has(need):
				wantError(t, a, 403, need.String())
			case a.StatusCode == 403 || a.StatusCode == 404 || a.StatusCode >= 500:
				t.Errorf("%s with %s: %s %s", pattern, scope, a.Status, a.body)
			}
			if scope != principal.Run && strings.Contains(a.body, d.own.EnvdAccessToken) {
				t.Errorf("%s with %s tells the token of the sandbox", pattern, scope)
			}
			want[any](t, d.as(d.acme, "POST", "/sandboxes/"+d.own.SandboxID+"/connect", `{"timeout":100}`), a.woken())
		}
	}
}

// woken is the status of the next connect, which finds the sandbox paused if this request paused
// it.
func (a answer) woken() int {
	if strings.HasSuffix(a.Request.URL.Path, "/pause") && a.StatusCode == 204 {
		return 201
	}
	return 200
}

func TestATenantWorksOnItsOwn(t *testing.T) {
	d := newDaemon(t)
	type named struct {
		TemplateID, SnapshotID string
		Names, Aliases         []string
	}
	snaps := want[[]named](t, d.as(d.acme, "GET", "/snapshots?name=mine", ""), 200)
	if len(snaps) != 1 || snaps[0].SnapshotID != "local/acme-mine:default" || snaps[0].Names[0] != "local/mine" {
		t.Errorf("its snapshots: %+v", snaps)
	}
	for _, name := range []string{"mine", "acme-mine", "local/acme-mine:default"} {
		want[created](t, d.as(d.acme, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q}`, name)), 201)
	}
	first := want[created](t, d.as(d.acme, "POST", "/v2/sandboxes", `{"templateID":"base"}`), 201) // of the image
	forks := want[[]struct{ Sandbox *created }](t, d.as(d.acme, "POST", "/sandboxes/"+first.SandboxID+"/fork", `{"count":2}`), 201)
	if len(forks) != 2 || forks[0].Sandbox.EnvdAccessToken == forks[1].Sandbox.EnvdAccessToken {
		t.Errorf("forks: %+v", forks)
	}
	// A fork by the operator of a tenant's sandbox belongs to the tenant.
	of := want[[]struct{ Sandbox *created }](t, d.do("POST", "/sandboxes/"+first.SandboxID+"/fork", `{}`), 201)
	want[any](t, d.as(d.acme, "GET", "/sandboxes/"+of[0].Sandbox.SandboxID, ""), 200)
	for who, n := range map[string]int{d.acme: 8, d.evil: 0, apiKey: 8} {
		if all := want[[]any](t, d.as(who, "GET", "/v2/sandboxes", ""), 200); len(all) != n {
			t.Errorf("a key sees %d sandboxes, want %d", len(all), n)
		}
	}
	if all := want[[]named](t, d.as(d.evil, "GET", "/templates", ""), 200); len(all) != 1 || all[0].TemplateID != "open" {
		t.Errorf("another's templates: %+v", all)
	}
	wantError(t, d.as(d.evil, "DELETE", "/templates/open", ""), 403)
	many := want[map[string]map[string]any](t, d.as(d.evil, "GET", "/sandboxes/metrics?sandbox_ids="+d.own.SandboxID, ""), 200)
	if len(many["sandboxes"]) != 0 {
		t.Errorf("another's use: %v", many)
	}
	want[any](t, d.as(d.acme, "DELETE", "/templates/local%2Facme-mine:default", ""), 400) // in use
	list := want[[]api.SandboxInfo](t, d.as(d.acme, "GET", "/v1/sandboxes", ""), 200)
	if len(list) != 8 {
		t.Errorf("the native API tells of %d", len(list))
	}
}

func TestQuotasHold(t *testing.T) {
	d := newDaemon(t)
	over := func(a answer, quota string, atLeast int) {
		t.Helper()
		wantError(t, a, 429, quota)
		var after int
		if _, err := fmt.Sscan(a.Header.Get("Retry-After"), &after); err != nil || after < atLeast {
			t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
	}
	two := d.key(keys.Spec{Name: "two", Tenant: "two", Quotas: keys.Quotas{Sandboxes: 2}})
	s := want[created](t, d.as(two, "POST", "/v2/sandboxes", `{"templateID":"open"}`), 201)
	want[created](t, d.as(two, "POST", "/sandboxes", `{"templateID":"open"}`), 201)
	over(d.as(two, "POST", "/v2/sandboxes", `{"templateID":"open"}`), "quota is 2", 10)
	over(d.as(two, "POST", "/sandboxes/"+s.SandboxID+"/fork", `{}`), "quota is 2", 10)
	want[any](t, d.as(two, "POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 204)
	over(d.as(two, "POST", "/v2/sandboxes", `{"templateID":"open"}`), "quota is 2", 10) // it must still be resumed
	some := d.key(keys.Spec{Name: "some", Tenant: "some", Quotas: keys.Quotas{Sandboxes: 3, ForksPerMinute: 4}})
	first := want[created](t, d.as(some, "POST", "/v2/sandboxes", `{"templateID":"open"}`), 201)
	branches := d.branches()
	over(d.as(some, "POST", "/sandboxes/"+first.SandboxID+"/fork", `{"count":3}`), "quota is 3", 10)
	if n := d.branches(); n != branches {
		t.Errorf("a fork that was refused has branched its source: %d branches, %d before", n, branches)
	}
	want[[]any](t, d.as(some, "POST", "/sandboxes/"+first.SandboxID+"/fork", `{"count":2}`), 201)
	for _, id := range d.others(some, first.SandboxID) {
		want[any](t, d.as(some, "DELETE", "/sandboxes/"+id, ""), 204)
	}
	want[[]any](t, d.as(some, "POST", "/sandboxes/"+first.SandboxID+"/fork", `{}`), 201) // each counts once
	over(d.as(some, "POST", "/sandboxes/"+first.SandboxID+"/fork", `{}`), "children per minute", 1)
	if n := d.branches(); n != branches+2 {
		t.Errorf("%d branches, want %d", n, branches+2)
	}
	slow := d.key(keys.Spec{Name: "slow", Tenant: "slow", Quotas: keys.Quotas{ForksPerMinute: 1}})
	want[created](t, d.as(slow, "POST", "/v2/sandboxes", `{"templateID":"open"}`), 201)
	over(d.as(slow, "POST", "/v2/sandboxes", `{"templateID":"open"}`), "children per minute", 1)
	d.engine.NoNetwork = true // a fork counts once there, too
	two = d.key(keys.Spec{Name: "minute", Tenant: "minute", Quotas: keys.Quotas{ForksPerMinute: 2}})
	for range 2 {
		want[created](t, d.as(two, "POST", "/v2/sandboxes", `{"templateID":"open"}`), 201)
	}
	over(d.as(two, "POST", "/v2/sandboxes", `{"templateID":"open"}`), "children per minute", 1)
	d.engine.NoNetwork = false
	full := d.key(keys.Spec{Name: "full", Tenant: "full", Quotas: keys.Quotas{MemoryMiB: 1}})
	over(d.as(full, "POST", "/v2/sandboxes", `{"templateID":"open"}`), "memory", 10)
	rare := d.key(keys.Spec{Name: "rare", Tenant: "rare", Quotas: keys.Quotas{RequestsPerSecond: 1}})
	for range 5 {
		if a := d.as(rare, "GET", "/v2/sandboxes", ""); a.StatusCode != 200 {
			over(a, "rate limit", 1)
			return
		}
	}
	t.Error("a flood of requests was answered")
}

// branches counts the branches that were made, even if their snapshots are deleted.
func (d *daemon) branches() int {
	d.t.Helper()
	all, err := d.engine.Receipts(receipt.Filter{Op: receipt.Branch})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(all)
}

// others returns the sandboxes a key sees, except one.
func (d *daemon) others(key, id string) (ids []string) {
	d.t.Helper()
	for _, s := range want[[]created](d.t, d.as(key, "GET", "/v2/sandboxes", ""), 200) {
		if s.SandboxID != id {
			ids = append(ids, s.SandboxID)
		}
	}
	return ids
}

// The token of a sandbox opens only its agent. Keys open no agent.
func TestTokensOfSandboxes(t *testing.T) {
	d := newDaemon(t)
	theirs := want[created](t, d.as(d.evil, "POST", "/v2/sandboxes", `{"templateID":"open"}`), 201)
	for name, token := range map[string]string{"another's token": theirs.EnvdAccessToken, "another's key": d.evil,
		"its own key": d.acme, "the operator's": apiKey, "none": ""} {
		wrong := d.own
		wrong.EnvdAccessToken = token
		if a := d.envd(wrong, "GET", "/envs", ""); a.StatusCode != 401 {
			t.Errorf("%s opens the agent: %s", name, a.Status)
		}
	}
	for pattern := range d.h.Routes() {
		if a := d.as3(d.own.EnvdAccessToken, pattern, d.own.SandboxID, "mine"); a.StatusCode != 401 {
			t.Errorf("the sandbox's token opens %s: %s", pattern, a.Status)
		}
	}
	// After a key is revoked, the objects made with it and their tokens stay with the tenant.
	for _, k := range d.keys.List() {
		if k.Name == "a" {
			if _, err := d.keys.Revoke(k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantError(t, d.as(d.acme, "GET", "/sandboxes/"+d.own.SandboxID, ""), 401)
	if a := d.envd(d.own, "GET", "/envs", ""); a.StatusCode != 200 {
		t.Errorf("its own token: %s %s", a.Status, a.body)
	}
	want[any](t, d.as(d.key(keys.Spec{Name: "next", Tenant: "acme"}), "DELETE", "/sandboxes/"+d.own.SandboxID, ""), 204)
	if a := d.envd(d.own, "GET", "/envs", ""); a.StatusCode != 502 {
		t.Errorf("after its end: %s", a.Status)
	}
}

func TestTheAuditLogNamesKeyAndTenant(t *testing.T) {
	d := newDaemon(t)
	path := filepath.Join(t.TempDir(), "f")
	d.envd(d.own, "POST", "/files?path="+path, "x", "Content-Type", "application/octet-stream")
	d.as(d.evil, "DELETE", "/sandboxes/"+d.own.SandboxID, "")
	d.as(d.acme, "DELETE", "/sandboxes/"+d.own.SandboxID, "")
	d.as("e2b_"+strings.Repeat("00", 20), "POST", "/v2/sandboxes", `{}`)
	d.envd(created{SandboxID: d.own.SandboxID, EnvdAccessToken: "wrong"}, "GET", "/envs", "")
	id := sandbox.CanonicalID(d.own.SandboxID)
	for _, w := range []audit.Entry{
		{Action: "sandbox.fork", Result: audit.OK, KeyName: "a", Tenant: "acme", Sandbox: id, Snapshot: "open", Count: 1},
		{Action: "sandbox.branch", Result: audit.OK, KeyName: "a", Tenant: "acme", Sandbox: id, Snapshot: "acme-mine"},
		{Action: "file.write", Tenant: "acme", Sandbox: id, Principal: "sandbox token"},
		{Action: "sandbox.kill", Result: audit.Refused, KeyName: "e", Tenant: "evil", Sandbox: id},
		{Action: "sandbox.kill", Result: audit.OK, KeyName: "a", Tenant: "acme", Sandbox: id},
		{Action: "sandbox.fork", Result: audit.Refused},
	} {
		if !slices.ContainsFunc(d.log.entries(), func(e audit.Entry) bool {
			return e.Action == w.Action && (w.Result == "" || e.Result == w.Result) && e.KeyName == w.KeyName &&
				e.Tenant == w.Tenant && e.Sandbox == w.Sandbox && e.Snapshot == w.Snapshot && e.Count == w.Count &&
				(w.Principal == "" || e.Principal == w.Principal) && (w.KeyName == "" || e.Key != "")
		}) {
			t.Errorf("there is no line like %+v", w)
		}
	}
	for _, e := range d.log.entries() {
		if e.Status == 401 && (!e.Anonymous || e.Principal != "anonymous" || e.Tenant+e.Key != "" || e.Claim == "") {
			t.Errorf("a refused request is not anonymous: %+v", e)
		}
	}
	if t.Failed() {
		for _, e := range d.log.entries() {
			b, _ := json.Marshal(e)
			t.Logf("%s", b)
		}
	}
}

// Tokens and keys are in no log, in no file except the records, and in no answer except the ones
// that issue them.
func TestPlantedSecretsOfE2BsClients(t *testing.T) {
	d := newDaemon(t)
	reader := d.key(keys.Spec{Name: "reader", Tenant: "acme", Scopes: principal.Read})
	d.envd(d.own, "GET", "/envs", "")
	d.do("GET", "/files?path=/etc/hostname&signature=v1_wrong&username=user", "", "X-Access-Token", d.own.EnvdAccessToken)
	child := want[[]struct{ Sandbox created }](t, d.as(d.acme, "POST", "/sandboxes/"+d.own.SandboxID+"/fork", `{}`), 201)[0].Sandbox
	secrets := map[string]string{"the sandbox's token": d.own.EnvdAccessToken, "the fork's": child.EnvdAccessToken,
		"a key": d.acme, "another key": reader, "the token": apiKey}
	places := map[string]string{}
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/" + sandbox.CanonicalID(d.own.SandboxID), "/v1/receipts",
		"/v1/events", "/metrics", "/v1/keys", "/v2/sandboxes", "/snapshots", "/templates", "/v1/snapshots"} {
		if path != "/v1/events" { // which does not end
			places["operator's GET "+path] = d.do("GET", path, "").body
		}
	}
	for _, path := range []string{"/v2/sandboxes", "/sandboxes/" + d.own.SandboxID, "/v2/sandboxes/" + d.own.SandboxID + "/logs"} {
		places["reader's GET "+path] = d.as(reader, "GET", path, "").body
	}
	d.log.mu.Lock()
	places["the log"] = d.log.text.String()
	d.log.mu.Unlock()
	b, err := json.Marshal(d.log.entries())
	if err != nil {
		t.Fatal(err)
	}
	places["the audit log"] = string(b)
	for _, name := range []string{"keys.json"} {
		if b, err = os.ReadFile(filepath.Join(d.dir, name)); err != nil {
			t.Fatal(err)
		}
		places[name] = string(b)
	}
	for where, text := range places {
		if len(text) < 3 {
			t.Errorf("%s is %q: that shows nothing", where, text)
		}
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", what, where)
			}
		}
	}
}
