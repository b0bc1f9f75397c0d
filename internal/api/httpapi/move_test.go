package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func resumeAt(urls ...string) string {
	b, _ := json.Marshal(api.ResumeRequest{Peers: urls})
	return string(b)
}

// pausedOf returns a paused sandbox of a tenant, or of the operator.
func (b *bench) pausedOf(owner string) string {
	b.t.Helper()
	r, err := b.engine.Fork(b.t.Context(), sandbox.ForkRequest{Tag: "py", N: 1, Owner: owner})
	if err != nil || r.Children[0].Err != nil {
		b.t.Fatal(err, r)
	}
	id := r.Children[0].Info.ID
	if _, err := b.engine.Pause(b.t.Context(), id, sandbox.PauseOptions{}); err != nil {
		b.t.Fatal(err)
	}
	return id
}

// A sandbox that is paused at one daemon is resumed at another, by its tenant only.
func TestASandboxIsResumedFromAPeer(t *testing.T) {
	from := newTenants(t)
	holder := httptest.NewServer(from.h)
	defer holder.Close()
	to := newReceiver(t, from.key(keys.Spec{Name: "peer", Scopes: principal.Layers}))
	acme, evil := to.tenantOn("acme"), to.tenantOn("evil")
	id, private := from.pausedOf("acme"), from.pausedOf("")

	wantError(t, to.do("POST", "/v1/sandboxes/"+id+"/resume", ""), api.CodeNotFound)
	for _, which := range []string{id, private, "sb-0000-0001"} {
		w := evil.as(evil.acme, "POST", "/v1/sandboxes/"+which+"/resume", resumeAt(holder.URL))
		wantError(t, w, api.CodeNotFound)
		if strings.Contains(w.Body.String(), "moved") || strings.Contains(w.Body.String(), "acme") {
			t.Errorf("another tenant learns: %s", w.Body)
		}
	}
	got := into[api.SandboxInfo](t, acme.as(acme.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(holder.URL)), 200)
	if got.ID != id || got.Status != "running" {
		t.Errorf("%+v", got)
	}
	again := into[api.SandboxInfo](t, acme.as(acme.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(holder.URL)), 200)
	if again.Status != "running" {
		t.Errorf("the second request: %+v", again)
	}
	moved := wantError(t, from.do("POST", "/v1/sandboxes/"+id+"/resume", ""), api.CodeNotFound)
	if moved.Reason != api.ReasonSandboxMoved {
		t.Errorf("the first daemon says %+v", moved)
	}
	evilAt := from.key(keys.Spec{Name: "evil", Tenant: "evil"})
	if w := from.as(evilAt, "GET", "/v1/sandboxes/"+id, ""); strings.Contains(w.Body.String(), "moved") {
		t.Errorf("another tenant learns: %s", w.Body)
	}
	into[api.SandboxInfo](t, to.do("POST", "/v1/sandboxes/"+private+"/resume", resumeAt(holder.URL)), 200)
	for _, sb := range from.engine.List() {
		if sb.ID == id || sb.ID == private {
			t.Errorf("the first daemon still has %s", sb.ID)
		}
	}
}

// Only daemons give sandboxes away: a key of the operator with the scope for it.
func TestWhoMayTakeASandbox(t *testing.T) {
	b := newTenants(t)
	id := b.pausedOf("acme")
	path := "/v1/sandboxes/" + id + "/handover"
	for name, spec := range map[string]keys.Spec{
		"its tenant":          {Tenant: "acme", Scopes: principal.All},
		"its tenant's layers": {Tenant: "acme", Scopes: principal.Layers},
		"without the scope":   {Scopes: principal.Fork | principal.Run | principal.Read},
	} {
		spec.Name = "k" + strings.ReplaceAll(strings.ReplaceAll(name, " ", ""), "'", "")
		if w := b.as(b.key(spec), "POST", path, "{}"); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	peer := b.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	h := into[api.Handover](t, b.as(peer, "POST", path, `{"tenant":"acme"}`), 200)
	if h.ID != id || h.Owner != "acme" || h.PausedIn == "" {
		t.Errorf("%+v", h)
	}
	wantError(t, b.as(peer, "POST", path, `{"tenant":"other"}`), api.CodeNotFound)
	wantError(t, b.as(peer, "POST", path, `{"tenant":"../x"}`), api.CodeInvalid)
	if info, err := b.engine.Get(id); err != nil || info.Status != sandbox.StatusPaused {
		t.Errorf("a description has changed it: %+v %v", info, err)
	}
}

// Peers that fail or lie get no sandbox into this daemon.
func TestHostilePeersOfASandbox(t *testing.T) {
	from := newTenants(t)
	id := from.pausedOf("acme")
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	var gifts atomic.Int64
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"another id": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"id":"sb-1111-0001","owner":"acme","paused_in":"x","paused_hash":"y","record":"{}"}`))
			return true
		},
		"another tenant": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"id":"` + id + `","owner":"evil","paused_in":"x","paused_hash":"y","record":"{}"}`))
			return true
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte("<html>"))
			return true
		},
		"too much": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"id":"` + strings.Repeat("x", 8*sandbox.MaxHandover) + `"}`))
			return true
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://127.0.0.2/", http.StatusTemporaryRedirect)
			return true
		},
		"other layers": nil,
	} {
		t.Run(name, func(t *testing.T) {
			to := newReceiver(t, key).tenantOn("acme")
			liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/handover") && answer != nil && answer(w, r):
				case strings.Contains(r.URL.Path, "/artifact/"):
					_, _ = w.Write([]byte("other content"))
				default:
					if strings.HasSuffix(r.URL.Path, "/handover") && r.ContentLength > 100 {
						gifts.Add(1)
					}
					from.h.ServeHTTP(w, r)
				}
			}))
			defer liar.Close()
			w := to.as(to.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(liar.URL))
			if w.Code < 400 || len(to.engine.List()) != 0 || gifts.Load() != 0 {
				t.Errorf("%d %s, and %d gifts", w.Code, w.Body, gifts.Load())
			}
		})
	}
	if info, err := from.engine.Get(id); err != nil || info.Status != sandbox.StatusPaused {
		t.Errorf("the giver has lost it: %v", err)
	}
	to := newReceiver(t, key)
	wantError(t, to.do("POST", "/v1/sandboxes/"+id+"/resume", resumeAt("http://example.org")), api.CodeForbidden)
	wantError(t, newBench(t).do("POST", "/v1/sandboxes/"+id+"/resume", resumeAt("http://127.0.0.1:1")), api.CodeUnsupported)
}

// The sandbox of a workspace stays where the workspace is. Other tenants do not learn of it.
func TestTheSandboxOfAWorkspaceStays(t *testing.T) {
	from := newTenants(t)
	holder := httptest.NewServer(from.h)
	defer holder.Close()
	to := newReceiver(t, from.key(keys.Spec{Name: "peer", Scopes: principal.Layers}))
	acme, evil := to.tenantOn("acme"), to.tenantOn("evil")
	desk := into[api.WorkspaceInfo](t, from.as(from.acme, "POST", "/v1/workspaces", `{"name":"desk","snapshot_tag":"py"}`), 201)
	id := desk.LiveSandboxID
	if _, err := from.engine.Pause(t.Context(), id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := wantError(t, acme.as(acme.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(holder.URL)), api.CodeUnsupported)
	if refused.Reason != api.ReasonSandboxBound || !strings.Contains(refused.Message, desk.Name) {
		t.Errorf("%+v", refused)
	}
	w := evil.as(evil.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(holder.URL))
	if wantError(t, w, api.CodeNotFound); strings.Contains(w.Body.String(), desk.Name) {
		t.Errorf("another tenant learns: %s", w.Body)
	}
	into[api.SandboxInfo](t, from.as(from.acme, "POST", "/v1/sandboxes/"+id+"/resume", ""), 200)
}

// facts are those of E2B's API about sandboxes.
type facts map[string]string

func (f facts) Carried(id string) ([]byte, string, error) { return []byte(f[id]), "", nil }

func (f facts) Receive(id string, b []byte) error {
	f[id] = string(b)
	return nil
}

func (f facts) Remove(id string) error {
	delete(f, id)
	return nil
}

// A peer that offers a sandbox under the id of another tenant's does not replace the facts about that one.
func TestFactsOfAnotherTenantStay(t *testing.T) {
	from := newTenants(t)
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	for _, c := range []struct {
		name string
		here bool // a sandbox of another tenant has the id
		code api.Code
		want string
	}{
		{"another tenant's", true, api.CodeConflict, "theirs"},
		{"a failed take", false, api.CodeInvalid, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept := facts{}
			b := newReceiverWith(t, key, func(o *httpapi.Options) { o.E2B = kept })
			id := "sb-aaaaaaaaaaaaaaaa"
			if c.here {
				made, err := b.engine.Fork(t.Context(), sandbox.ForkRequest{Tag: snapshotOf(t, b), N: 1, Owner: "victim"})
				if err != nil {
					t.Fatal(err)
				}
				id = made.Children[0].Info.ID
				kept[id] = "theirs"
			}
			liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"id":"` + id + `","owner":"acme","paused_in":"x","paused_hash":"y","record":"{}","e2b":"mine"}`))
			}))
			defer liar.Close()
			to := b.tenantOn("acme")
			wantError(t, to.as(to.acme, "POST", "/v1/sandboxes/"+id+"/resume", resumeAt(liar.URL)), c.code)
			if kept[id] != c.want {
				t.Errorf("the facts are %q, want %q", kept[id], c.want)
			}
		})
	}
}

// snapshotOf makes a snapshot, and returns its tag.
func snapshotOf(t *testing.T, b *bench) string {
	t.Helper()
	_, err := b.engine.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "shared", Image: "python-numpy"},
		func(sandbox.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	return "shared"
}
