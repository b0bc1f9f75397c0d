package httpapi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/testing/secretstest"
)

// hiddenValue is looked for in all output.
const hiddenValue = "sk-never-shown-0123456789"

func TestASecretIsSetListedRotatedAndRemoved(t *testing.T) {
	b := newBench(t)
	made := into[api.Secret](t, b.do("PUT", "/v1/secrets/TOKEN", `{"value":"`+hiddenValue+`","metadata":{"team":"a"}}`), 200)
	again := into[api.Secret](t, b.do("PUT", "/v1/secrets/TOKEN", `{"value":"`+hiddenValue+`"}`), 200)
	next := into[api.Secret](t, b.do("PUT", "/v1/secrets/TOKEN", `{"value":"`+hiddenValue+`2"}`), 200)
	if made.Version != 1 || again.Version != 1 || next.Version != 2 || next.ID != made.ID || next.Metadata["team"] != "a" {
		t.Error(made, again, next)
	}
	if got := into[api.Secret](t, b.do("GET", "/v1/secrets/TOKEN", ""), 200); got.Version != 2 {
		t.Error(got)
	}
	if list := into[[]api.Secret](t, b.do("GET", "/v1/secrets", ""), 200); len(list) != 1 || list[0].Name != "TOKEN" {
		t.Error(list)
	}
	if w := b.do("DELETE", "/v1/secrets/TOKEN", ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	e := wantError(t, b.do("GET", "/v1/secrets/TOKEN", ""), api.CodeNotFound)
	if e.Reason != api.ReasonSecretNotFound || e.Details["secret"] != "TOKEN" {
		t.Error(e)
	}
	for _, action := range []string{"secret.set", "secret.remove"} {
		line := regexp.MustCompile(`"action":"` + action + `","result":"ok".*"object":"TOKEN".*"note":"id ` + made.ID)
		if !line.MatchString(b.audit.String()) {
			t.Errorf("the audit log lacks %s: %s", action, b.audit)
		}
	}
}

func TestNoAnswerLogOrAuditLineHasAValue(t *testing.T) {
	b := newBench(t)
	long := hiddenValue + strings.Repeat("x", 70_000)
	for _, body := range []string{
		`{"value":"` + hiddenValue + `"}`,
		`{"value":"` + long + `"}`,
		`{"value":["` + hiddenValue + `"]}`,
		`{"value":{"a":"` + hiddenValue + `"}}`,
		`{"value":"` + hiddenValue + `","metadata":7}`,
		`{"value":"` + hiddenValue + `","extra":1}`,
		`{"value":"` + hiddenValue + `"`,
		`"` + hiddenValue + `"`,
	} {
		w := b.do("PUT", "/v1/secrets/TOKEN", body)
		if strings.Contains(w.Body.String(), hiddenValue) {
			t.Errorf("the answer to %.60s has the value: %.200s", body, w.Body)
		}
	}
	for _, path := range []string{"/v1/secrets", "/v1/secrets/TOKEN"} {
		if w := b.do("GET", path, ""); strings.Contains(w.Body.String(), hiddenValue) {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
	if strings.Contains(b.log.String(), hiddenValue) || strings.Contains(b.audit.String(), hiddenValue) {
		t.Error("a value is in the log or the audit log")
	}
}

func TestTenantsSeeTheirOwnSecretsOnly(t *testing.T) {
	b := newTenants(t)
	acme, evil := b.acme, b.evil
	reader := b.key(keys.Spec{Name: "r", Tenant: "acme", Scopes: principal.Read | principal.Fork})
	into[api.Secret](t, b.as(acme, "PUT", "/v1/secrets/TOKEN", `{"value":"x"}`), 200)
	theirs := wantError(t, b.as(evil, "GET", "/v1/secrets/TOKEN", ""), api.CodeNotFound)
	absent := wantError(t, b.as(evil, "GET", "/v1/secrets/TOKEX", ""), api.CodeNotFound)
	if strings.ReplaceAll(absent.Message, "TOKEX", "TOKEN") != theirs.Message || absent.Reason != theirs.Reason {
		t.Errorf("the answers differ: %v, %v", theirs, absent)
	}
	if w := b.as(evil, "DELETE", "/v1/secrets/TOKEN", ""); w.Code != 404 {
		t.Error(w.Code)
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		w := b.as(evil, method, "/v1/secrets/TOKEN?tenant=acme", `{"value":"y"}`)
		if e := wantError(t, w, api.CodeForbidden); e.Reason != api.ReasonOperatorOnly {
			t.Error(method, e)
		}
	}
	if list := into[[]api.Secret](t, b.as(evil, "GET", "/v1/secrets", ""), 200); len(list) != 0 {
		t.Error(list)
	}
	if list := into[[]api.Secret](t, b.do("GET", "/v1/secrets", ""), 200); len(list) != 0 {
		t.Error("the operator's own list has a tenant's", list)
	}
	if got := into[api.Secret](t, b.do("GET", "/v1/secrets/TOKEN?tenant=acme", ""), 200); got.Tenant != "acme" {
		t.Error(got)
	}
	into[[]api.Secret](t, b.as(reader, "GET", "/v1/secrets", ""), 200)
	for _, method := range []string{"PUT", "DELETE"} {
		wantError(t, b.as(reader, method, "/v1/secrets/TOKEN", `{"value":"y"}`), api.CodeForbidden)
	}
}

func TestWithoutAKeySecretsAreOff(t *testing.T) {
	b := newBenchWith(t, func(o *httpapi.Options) { o.SecretStore = nil })
	for _, c := range [][2]string{{"GET", "/v1/secrets"}, {"GET", "/v1/secrets/X"}, {"PUT", "/v1/secrets/X"}, {"DELETE", "/v1/secrets/X"}} {
		e := wantError(t, b.do(c[0], c[1], `{"value":"x"}`), api.CodeUnsupported)
		if e.Reason != api.ReasonSecretsOff || !strings.Contains(e.Message, "without a key") {
			t.Error(c, e)
		}
	}
}

func TestADamagedSecretIsListedAndReplaced(t *testing.T) {
	dir := t.TempDir()
	store := secretstest.Open(t, dir)
	if _, err := store.Set(secrets.Change{Name: "TOKEN", Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secrets", "operator", "TOKEN.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := secrets.ReadKeyFile(filepath.Join(dir, "secrets.key"), false)
	if err != nil {
		t.Fatal(err)
	}
	if store, err = secrets.Open(secrets.Config{Dir: filepath.Join(dir, "secrets"), Key: key}); err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, func(o *httpapi.Options) { o.SecretStore = store })
	if got := into[api.Secret](t, b.do("GET", "/v1/secrets/TOKEN", ""), 200); got.Damage == "" {
		t.Error(got)
	}
	if got := into[api.Secret](t, b.do("PUT", "/v1/secrets/TOKEN", `{"value":"y"}`), 200); got.Damage != "" || got.Version != 1 {
		t.Error(got)
	}
}
