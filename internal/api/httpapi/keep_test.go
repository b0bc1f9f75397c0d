package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// score writes a file with a score in a sandbox.
func (b *bench) score(id, text string) {
	b.t.Helper()
	b.put(id, "/score", text)
}

func TestKeepTheBest(t *testing.T) {
	b := newBench(t)
	all := b.fork("3")
	for i, text := range []string{"1.5", "1e1\n", "n/a"} {
		b.score(all[i].ID, text)
	}
	res := into[api.KeepResult](t, b.do("POST", "/v1/sandboxes/keep", `{"of":"py","best":1,"file":"/score"}`), 200)
	if res.Kept != 2 || res.Ended != 1 || res.Unscored != 1 || len(res.Sandboxes) != 3 || *res.Sandboxes[0].Score != 10 ||
		res.Sandboxes[1].Outcome != api.KeepEnded || res.Sandboxes[2].Score != nil {
		t.Errorf("got %+v", res)
	}
	wantError(t, b.do("GET", "/v1/sandboxes/"+all[0].ID, ""), api.CodeNotFound)
	if line := b.audit.String(); !strings.Contains(line, `"sandbox.keep"`) || !strings.Contains(line, `"object":"`+all[0].ID+`"`) {
		t.Errorf("the audit log does not name what was ended: %s", line)
	}
	for _, body := range []string{`{}`, `{"of":"py","best":1}`, `{"of":"py","best":0,"file":"/score"}`, `{"best":1,"file":"/score"}`,
		`{"of":"py","ids":["x"],"best":1,"file":"/score"}`, `{"of":"py","best":1,"file":"/score","args":["a"]}`,
		`{"of":"py","best":1,"args":[""]}`, `{"ids":[],"best":1,"file":"/score"}`, `{"of":"py","best":1,"file":"/score","timeout_secs":-1}`} {
		wantError(t, b.do("POST", "/v1/sandboxes/keep", body), api.CodeInvalid)
	}
}

// A tenant compares its own sandboxes only, and a key that may not end sandboxes compares none.
func TestTenantsKeepTheirOwn(t *testing.T) {
	b := newTenants(t)
	b.score(b.sandbox, "1")
	for _, body := range []string{`{"ids":["%s"],"best":1,"file":"/score"}`, `{"of":"%s","best":1,"file":"/score"}`} {
		w := b.as(b.evil, "POST", "/v1/sandboxes/keep", fmt.Sprintf(body, b.sandbox))
		if got := wantError(t, w, api.CodeNotFound); strings.Contains(got.Message, "base") {
			t.Errorf("got %s", got.Message)
		}
	}
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes/keep", `{"of":"acme-base","best":1,"file":"/score"}`), api.CodeNotFound)
	for _, s := range []principal.Scopes{principal.Read, principal.Run, principal.Fork} {
		key := b.key(keys.Spec{Name: "only-" + s.String(), Tenant: "acme", Scopes: s})
		wantError(t, b.as(key, "POST", "/v1/sandboxes/keep", `{"of":"base","best":1,"file":"/score"}`), api.CodeForbidden)
	}
	res := into[api.KeepResult](t, b.as(b.acme, "POST", "/v1/sandboxes/keep", `{"of":"base","best":1,"file":"/score"}`), 200)
	if res.Kept != 1 || res.Sandboxes[0].ID != b.sandbox {
		t.Errorf("got %+v", res)
	}
}
