package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// setSecret sets a secret of the operator and returns its version.
func (b *bench) setSecret(name, value string) int {
	b.t.Helper()
	return into[api.Secret](b.t, b.do("PUT", "/v1/secrets/"+name, fmt.Sprintf(`{"value":"%s"}`, value)), 200).Version
}

// forkWith forks a sandbox with secrets.
func (b *bench) forkWith(tag, secrets string) api.SandboxInfo {
	b.t.Helper()
	body := fmt.Sprintf(`{"snapshot_tag":%q,"secrets":%s}`, tag, secrets)
	return into[[]api.SandboxInfo](b.t, b.do("POST", "/v1/sandboxes", body), 201)[0]
}

// variable returns a variable of programs in a sandbox; empty if it is not set.
func (b *bench) variable(id, name string) string {
	b.t.Helper()
	res := into[api.ExecResponse](b.t, b.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["env"]}`), 200)
	for line := range strings.Lines(res.Stdout) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return v
		}
	}
	return ""
}

func (b *bench) held(id string) []api.HeldSecret {
	b.t.Helper()
	return into[api.SandboxInfo](b.t, b.do("GET", "/v1/sandboxes/"+id, ""), 200).Secrets
}

func (b *bench) inSnapshot(tag string) []api.HeldSecret {
	b.t.Helper()
	return into[api.SnapshotDetail](b.t, b.do("GET", "/v1/snapshots/"+tag+"/info", ""), 200).Secrets
}

func (b *bench) branchAs(id, tag string) {
	b.t.Helper()
	into[api.BranchResult](b.t, b.do("POST", "/v1/sandboxes/"+id+"/branch", fmt.Sprintf(`{"tag":%q}`, tag)), 201)
}

// The rows of the table in docs/use/secrets.md: what each operation gives to a clone.
func TestWhatACloneGetsOfASecret(t *testing.T) {
	type world struct {
		*bench
		id string // a sandbox with the secret TOKEN, which had the value "one"
	}
	given := []api.HeldSecret{{Name: "TOKEN", Version: 1, Env: "TOKEN"}}
	taint := []api.HeldSecret{{Name: "TOKEN", Version: 1}}
	for name, row := range map[string]func(world){
		"fork: only the children of the request": func(w world) {
			other := w.forkWith("py", `[]`)
			if w.variable(w.id, "TOKEN") != "one" || !slices.Equal(w.held(w.id), given) {
				t.Error(w.held(w.id))
			}
			if w.variable(other.ID, "TOKEN") != "" || w.held(other.ID) != nil || w.inSnapshot("py") != nil {
				t.Error("a sibling has it", w.held(other.ID))
			}
		},
		"fork under another variable": func(w world) {
			other := w.forkWith("py", `[{"name":"TOKEN","env":"API_KEY"}]`)
			if w.variable(other.ID, "API_KEY") != "one" || w.variable(other.ID, "TOKEN") != "" {
				t.Error(w.held(other.ID))
			}
		},
		"branch: the memory only, and the snapshot is tainted": func(w world) {
			w.branchAs(w.id, "b")
			child := w.forkWith("b", `[]`)
			if w.variable(child.ID, "TOKEN") != "" || !slices.Equal(w.held(child.ID), taint) || !slices.Equal(w.inSnapshot("b"), taint) {
				t.Error(w.variable(child.ID, "TOKEN"), w.held(child.ID), w.inSnapshot("b"))
			}
			w.branchAs(child.ID, "b2")
			if !slices.Equal(w.inSnapshot("b2"), taint) {
				t.Error("a branch of a child", w.inSnapshot("b2"))
			}
		},
		"branch with children that get it": func(w world) {
			res := into[api.BranchResult](t, w.do("POST", "/v1/sandboxes/"+w.id+"/branch",
				`{"tag":"b","n":1,"secrets":[{"name":"TOKEN"}]}`), 201)
			if id := res.Children[0].ID; w.variable(id, "TOKEN") != "one" || !slices.Equal(w.held(id), given) {
				t.Error(w.held(id))
			}
		},
		"a snapshot derived from a tainted one": func(w world) {
			w.branchAs(w.id, "b")
			into[api.SnapshotInfo](t, w.do("POST", "/v1/snapshots", `{"tag":"d","from":"b","exec":["true"]}`), 201)
			if !slices.Equal(w.inSnapshot("d"), taint) {
				t.Error(w.inSnapshot("d"))
			}
		},
		"rollback: the current value": func(w world) {
			w.branchAs(w.id, "b")
			w.setSecret("TOKEN", "two")
			if w.variable(w.id, "TOKEN") != "one" {
				t.Error("a rotation reaches a running environment")
			}
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/rollback", `{"snapshot_tag":"py"}`), 200)
			want := []api.HeldSecret{{Name: "TOKEN", Version: 2, Env: "TOKEN"}}
			if w.variable(w.id, "TOKEN") != "two" || !slices.Equal(w.held(w.id), want) {
				t.Error(w.held(w.id))
			}
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/rollback", `{"snapshot_tag":"b"}`), 200)
			want = append(want, api.HeldSecret{Name: "TOKEN", Version: 1, Void: true})
			if !slices.Equal(w.held(w.id), want) {
				t.Error("its memory has the first value again", w.held(w.id))
			}
		},
		"pause and resume: the current value": func(w world) {
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/pause", ""), 200)
			w.setSecret("TOKEN", "two")
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/resume", ""), 200)
			if w.variable(w.id, "TOKEN") != "two" {
				t.Error(w.held(w.id))
			}
		},
		"resume after a removal: no value": func(w world) {
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/pause", ""), 200)
			w.do("DELETE", "/v1/secrets/TOKEN", "")
			into[api.SandboxInfo](t, w.do("POST", "/v1/sandboxes/"+w.id+"/resume", ""), 200)
			want := []api.HeldSecret{{Name: "TOKEN", Version: 1, Void: true}}
			if w.variable(w.id, "TOKEN") != "" || !slices.Equal(w.held(w.id), want) {
				t.Error(w.held(w.id))
			}
		},
		"promote: its own variables, and the child's memory": func(w world) {
			w.setSecret("OTHER", "x")
			w.branchAs(w.id, "b")
			child := w.forkWith("b", `[{"name":"OTHER"}]`)
			into[api.PromoteResult](t, w.do("POST", "/v1/sandboxes/"+child.ID+"/promote", `{}`), 200)
			want := append(slices.Clone(given), api.HeldSecret{Name: "OTHER", Version: 1})
			if got := w.held(w.id); w.variable(w.id, "TOKEN") != "one" || w.variable(w.id, "OTHER") != "" ||
				!slices.Equal(got, want) {
				t.Error(got)
			}
		},
	} {
		b := newBench(t)
		b.setSecret("TOKEN", "one")
		t.Log(name)
		row(world{b, b.forkWith("py", `[{"name":"TOKEN"}]`).ID})
	}
}

func TestATaintedSnapshotIsNotPublishedOrExported(t *testing.T) {
	b := newBench(t)
	b.setSecret("TOKEN", "one")
	id := b.forkWith("py", `[{"name":"TOKEN"}]`).ID
	b.branchAs(id, "b")
	refused := func(tag string) {
		t.Helper()
		for _, w := range []api.Error{
			wantError(t, b.do("PUT", "/v1/snapshots/"+tag+"/public", `{"public":true}`), api.CodeConflict),
			wantError(t, b.do("GET", "/v1/snapshots/"+tag+"/export", ""), api.CodeConflict),
		} {
			if w.Reason != api.ReasonTainted || w.Details["secret"] != "TOKEN" || !strings.Contains(w.Message, "TOKEN") {
				t.Error(w)
			}
		}
	}
	refused("b")
	if w := b.do("PUT", "/v1/snapshots/b/public", `{"public":false}`); w.Code != 200 {
		t.Error("it can be made private", w.Code)
	}
	b.setSecret("TOKEN", "one") // the same value: what the snapshot has is still valid
	refused("b")
	b.setSecret("TOKEN", "two")
	if got := b.inSnapshot("b"); len(got) != 1 || !got[0].Void {
		t.Error(got)
	}
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/b/public", `{"public":true}`), 200)
	if w := b.do("GET", "/v1/snapshots/b/export", ""); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
	b.branchAs(id, "b2") // its environment still has the void value
	if got := b.inSnapshot("b2"); got != nil {
		t.Error(got)
	}
	id = b.forkWith("py", `[{"name":"TOKEN"}]`).ID
	b.branchAs(id, "b3")
	refused("b3")
	b.do("DELETE", "/v1/secrets/TOKEN", "")
	b.setSecret("TOKEN", "two") // another secret, although the value is the same
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/b3/public", `{"public":true}`), 200)
	receipts := into[[]api.Receipt](t, b.do("GET", "/v1/receipts", ""), 200)
	n := 0
	for _, r := range receipts {
		for _, s := range r.Secrets {
			if n++; s.Name != "TOKEN" || s.Version == 0 {
				t.Error(r)
			}
		}
	}
	if n == 0 {
		t.Error("no receipt has the secret")
	}
}

func TestSecretsThatCannotBeGiven(t *testing.T) {
	b := newTenants(t)
	b.setSecret("TOKEN", hiddenValue)
	b.setSecret("ZERO", `a\u0000b`)
	for name, c := range map[string]struct {
		body   string
		code   api.Code
		reason api.Reason
	}{
		"an absent one":          {`"secrets":[{"name":"NONE"}]`, api.CodeNotFound, api.ReasonSecretNotFound},
		"a variable twice":       {`"secrets":[{"name":"TOKEN"},{"name":"TOKEN"}]`, api.CodeInvalid, ""},
		"a variable of env":      {`"env":{"TOKEN":"x"},"secrets":[{"name":"TOKEN"}]`, api.CodeInvalid, ""},
		"no name of a variable":  {`"secrets":[{"name":"TOKEN","env":"A=B"}]`, api.CodeInvalid, api.ReasonSecretUnreadable},
		"a value with a zero":    {`"secrets":[{"name":"ZERO"}]`, api.CodeInvalid, api.ReasonSecretUnreadable},
		"a name that cannot be":  {`"secrets":[{"name":"../x"}]`, api.CodeInvalid, ""},
		"too many of them":       {`"secrets":[` + strings.Repeat(`{"name":"TOKEN"},`, 64) + `{"name":"TOKEN"}]`, api.CodeInvalid, ""},
		"a value in its place":   {`"secrets":["` + hiddenValue + `"]`, api.CodeInvalid, ""},
		"an object for the list": {`"secrets":{"TOKEN":"` + hiddenValue + `"}`, api.CodeInvalid, ""},
	} {
		w := b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py",`+c.body+`}`)
		if e := wantError(t, w, c.code); e.Reason != c.reason || strings.Contains(w.Body.String(), hiddenValue) {
			t.Error(name, e)
		}
	}
	n := len(into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200))
	if n != 1 {
		t.Error("a refused fork left sandboxes", n)
	}
	// Tenants have names of their own: the operator's secret is absent for them.
	w := b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"base","secrets":[{"name":"TOKEN"}]}`)
	if e := wantError(t, w, api.CodeNotFound); e.Reason != api.ReasonSecretNotFound {
		t.Error(e)
	}
	into[api.Secret](t, b.as(b.acme, "PUT", "/v1/secrets/TOKEN", `{"value":"acme's"}`), 200)
	forker := b.key(keys.Spec{Name: "f", Tenant: "acme", Scopes: principal.Read | principal.Run | principal.Fork})
	sb := into[[]api.SandboxInfo](t, b.as(forker, "POST", "/v1/sandboxes", `{"snapshot_tag":"base","secrets":[{"name":"TOKEN"}]}`), 201)[0]
	if b.variable(sb.ID, "TOKEN") != "acme's" {
		t.Error("a tenant's sandbox lacks its tenant's secret")
	}
	if strings.Contains(b.log.String(), hiddenValue) || strings.Contains(b.audit.String(), hiddenValue) {
		t.Error("a value is in the log or the audit log")
	}
}
