package e2bapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/testing/secretstest"
)

func secretBench(t *testing.T) *bench {
	t.Helper()
	store := secretstest.Open(t, t.TempDir())
	return newBench(t, func(o *e2bapi.Options) { o.Secrets = store })
}

func (b *bench) as(key, method, path, body string) answer {
	return b.do(method, path, body, "X-Api-Key", key)
}

type shownSecret struct {
	SecretID, Name string
	CurrentVersion int
	Metadata       map[string]string
}

func TestSecretsOfE2B(t *testing.T) {
	b := secretBench(t)
	made := want[shownSecret](t, b.as("tenant_a", "POST", "/secrets", `{"name":"TOKEN","value":"v1","metadata":{"a":"b"}}`), 201)
	if made.CurrentVersion != 1 || made.SecretID == "" || made.Metadata["a"] != "b" {
		t.Error(made)
	}
	want[any](t, b.as("tenant_a", "POST", "/secrets", `{"name":"TOKEN","value":"v2"}`), 409)
	for _, name := range []string{"TOKEN", made.SecretID} {
		if got := want[shownSecret](t, b.as("tenant_a", "GET", "/secrets/"+name, ""), 200); got.Name != "TOKEN" {
			t.Error(got)
		}
		want[any](t, b.as("tenant_b", "GET", "/secrets/"+name, ""), 404)
		want[any](t, b.as("tenant_b", "POST", "/secrets/"+name, `{"value":"x"}`), 404)
		want[any](t, b.as("tenant_b", "DELETE", "/secrets/"+name, ""), 404)
	}
	if got := want[shownSecret](t, b.as("tenant_a", "POST", "/secrets/"+made.SecretID, `{"value":"v2"}`), 200); got.CurrentVersion != 2 || got.Metadata["a"] != "b" {
		t.Error(got)
	}
	if got := want[shownSecret](t, b.as("tenant_a", "POST", "/secrets/TOKEN", `{"metadata":{"c":"d"}}`), 200); got.CurrentVersion != 2 || got.Metadata["c"] != "d" {
		t.Error(got)
	}
	for body, status := range map[string]int{`{"name":"X"}`: 400, `{"name":"../x","value":"v"}`: 400, `{"name":"X","value":""}`: 400,
		`{"name":"X","value":["hidden-value"]}`: 400, `"hidden-value"`: 400} {
		if text := fmt.Sprint(want[any](t, b.as("tenant_a", "POST", "/secrets", body), status)); strings.Contains(text, "hidden-value") {
			t.Error(text)
		}
	}
	want[any](t, b.as("tenant_a", "DELETE", "/secrets/TOKEN", ""), 204)
	want[any](t, b.as("tenant_a", "GET", "/secrets/TOKEN", ""), 404)
}

func TestPagesOfSecrets(t *testing.T) {
	b := secretBench(t)
	for i := range 5 {
		want[shownSecret](t, b.as("tenant_a", "POST", "/secrets", fmt.Sprintf(`{"name":"S%d","value":"v"}`, i)), 201)
	}
	seen, next := map[string]bool{}, ""
	for range 3 {
		res := b.as("tenant_a", "GET", "/secrets?limit=2&nextToken="+next, "")
		for _, s := range want[[]shownSecret](t, res, 200) {
			seen[s.Name] = true
		}
		next = res.Header.Get("X-Next-Token")
	}
	if len(seen) != 5 || next != "" {
		t.Error(seen, next)
	}
}

func TestSecretsAreOffWithoutAKey(t *testing.T) {
	b := newBench(t)
	for _, c := range [][2]string{{"GET", "/secrets"}, {"POST", "/secrets"}, {"GET", "/secrets/X"}} {
		if text := fmt.Sprint(want[any](t, b.as("tenant_a", c[0], c[1], `{"name":"X","value":"v"}`), http.StatusNotImplemented)); !strings.Contains(text, "without a key") {
			t.Error(text)
		}
	}
}
