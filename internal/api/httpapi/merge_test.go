package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// put writes a file in a sandbox.
func (b *bench) put(id, path, text string) {
	b.t.Helper()
	r := httptest.NewRequest("POST", "/v1/sandboxes/"+id+"/agent/files?path="+path, strings.NewReader(text))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/octet-stream")
	w := httptest.NewRecorder()
	if b.h.ServeHTTP(w, r); w.Code != 200 {
		b.t.Fatalf("upload: %d %s", w.Code, w.Body)
	}
}

func TestMerge(t *testing.T) {
	b := newBench(t)
	all := b.fork("2")
	ours, theirs := all[0].ID, all[1].ID
	b.put(theirs, "/srv/a", "new")
	b.put(theirs, "/srv/b", "one")
	b.put(ours, "/srv/b", "two")
	path := "/v1/sandboxes/" + ours + "/merge"
	for _, body := range []string{`{}`, `{"theirs":""}`, `{"theirs":"../x"}`, `{"theirs":"` + ours + `"}`, `{"theirs":"py","resolve":"mine"}`,
		`{"theirs":"py","paths":{"/a":"mine"}}`, `{"theirs":"py","paths":{"/a":""}}`, `{"theirs":"py","base":"a b"}`} {
		wantError(t, b.do("POST", path, body), api.CodeInvalid)
	}
	res := into[api.MergeResult](t, b.do("POST", path, `{"theirs":"`+theirs+`"}`), 200)
	if res.Applied || res.Unresolved != 1 || len(res.Changes) != 1 || res.Conflicts[0].Text != "CONFLICT (add/add): /srv/b: different files" {
		t.Errorf("got %+v", res)
	}
	if w := b.do("GET", "/v1/sandboxes/"+ours+"/agent/files?path=/srv/a", ""); w.Code != 404 {
		t.Errorf("it was changed: %d %s", w.Code, w.Body)
	}
	res = into[api.MergeResult](t, b.do("POST", path, `{"theirs":"`+theirs+`","paths":{"/srv/b":"theirs"}}`), 200)
	if !res.Applied || res.Unresolved != 0 || len(res.Changes) != 2 {
		t.Errorf("got %+v", res)
	}
	for name, want := range map[string]string{"/srv/a": "new", "/srv/b": "one"} {
		if w := b.do("GET", "/v1/sandboxes/"+ours+"/agent/files?path="+name, ""); w.Body.String() != want {
			t.Errorf("%s is %q", name, w.Body)
		}
	}
	if list := into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200); len(list) != 2 {
		t.Errorf("helpers are left: %+v", list)
	}
	b.engine.Fail(theirs, "killed by signal 9")
	wantError(t, b.do("POST", path, `{"theirs":"`+theirs+`"}`), api.CodeGuestGone)
	if list := into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200); len(list) != 2 {
		t.Errorf("helpers are left after an error: %+v", list)
	}
}

// A tenant merges its own sandboxes, with a key that may run programs and fork.
func TestTenantsMergeTheirOwn(t *testing.T) {
	b := newTenants(t)
	other := into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes/"+b.sandbox+"/merge", `{"theirs":"`+other+`"}`), api.CodeNotFound)
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes/"+other+"/merge", `{"theirs":"`+b.sandbox+`"}`), api.CodeNotFound)
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes/"+other+"/merge", `{"theirs":"private"}`), api.CodeNotFound)
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes/"+other+"/merge", `{"theirs":"py","base":"private"}`), api.CodeNotFound)
	for _, s := range []principal.Scopes{principal.Read, principal.Run, principal.Fork} {
		key := b.key(keys.Spec{Name: "only-" + s.String(), Tenant: "acme", Scopes: s})
		wantError(t, b.as(key, "POST", "/v1/sandboxes/"+b.sandbox+"/merge", `{"theirs":"base"}`), api.CodeForbidden)
	}
	sibling := into[[]api.SandboxInfo](t, b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"base"}`), 201)[0].ID
	b.put(sibling, "/srv/a", "new")
	res := into[api.MergeResult](t, b.as(b.acme, "POST", "/v1/sandboxes/"+b.sandbox+"/merge", `{"theirs":"`+sibling+`"}`), 200)
	if !res.Applied || len(res.Changes) != 1 {
		t.Errorf("got %+v", res)
	}
}
