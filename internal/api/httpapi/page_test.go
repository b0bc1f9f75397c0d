package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// browser sends requests as the page does after a login.
type browser struct {
	t      *testing.T
	h      http.Handler
	cookie *http.Cookie
	proof  string
}

func (b *browser) do(method, path, body string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8889"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
		r.Header.Set("X-Forkd-UI", b.proof)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

func (b *browser) logIn(key string) int {
	b.t.Helper()
	b.cookie = nil
	w := b.do("POST", "/ui/session", `{"key": "`+key+`"}`)
	if w.Code == http.StatusOK {
		var answer struct{ Proof string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			b.t.Fatal(err)
		}
		b.cookie, b.proof = w.Result().Cookies()[0], answer.Proof
	}
	return w.Code
}

func pageBench(t *testing.T) (*bench, *browser) {
	b := newBench(t)
	b.server = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, Keys: b.keys, Page: true})
	return b, &browser{t: t, h: b.server.Handler(auth.Access{Token: token, Keys: b.keys})}
}

func TestASessionOfThePageHasTheRightsOfItsKey(t *testing.T) {
	b, page := pageBench(t)
	if code := page.do("GET", "/v1/sandboxes", "").Code; code != http.StatusUnauthorized {
		t.Errorf("without a login: %d", code)
	}
	if w := page.do("GET", "/ui/session", ""); w.Code != http.StatusNoContent {
		t.Errorf("nobody is logged in: %d %s", w.Code, w.Body)
	}
	if code := page.logIn("0123456789abcdef0123456789abcde0"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	if code := page.logIn(token); code != http.StatusOK {
		t.Fatalf("the token: %d", code)
	}
	if w := page.do("GET", "/ui/session", ""); w.Body.String() != `{"name":"token","tenant":"","admin":true}`+"\n" {
		t.Errorf("got %s", w.Body)
	}
	if w := page.do("POST", "/v1/sandboxes", `{"snapshot_tag": "py", "n": 2}`); w.Code != http.StatusOK && w.Code != http.StatusCreated {
		t.Errorf("a fork: %d %s", w.Code, w.Body)
	}
	k, text, err := b.keys.Create(keys.Spec{Name: "reader", Tenant: "acme", Scopes: principal.Read})
	if err != nil {
		t.Fatal(err)
	}
	if code := page.logIn(text); code != http.StatusOK {
		t.Fatalf("a key: %d", code)
	}
	if w := page.do("GET", "/ui/session", ""); w.Body.String() != `{"name":"reader","tenant":"acme","admin":false}`+"\n" {
		t.Errorf("got %s", w.Body)
	}
	if w := page.do("GET", "/v1/sandboxes", ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "sb-") {
		t.Errorf("the tenant sees %d %s", w.Code, w.Body)
	}
	if w := page.do("POST", "/v1/sandboxes", `{"snapshot_tag": "py"}`); w.Code != http.StatusForbidden {
		t.Errorf("a reader forks: %d", w.Code)
	}
	if _, err := b.keys.Revoke(k.ID); err != nil {
		t.Fatal(err)
	}
	if code := page.do("GET", "/v1/sandboxes", "").Code; code != http.StatusUnauthorized {
		t.Errorf("a revoked key: %d", code)
	}
}

func TestASessionIsNoUseWithoutThePage(t *testing.T) {
	b := newBench(t)
	page := &browser{t: t, h: b.h}
	for _, path := range []string{"/ui/", "/ui", "/ui/session"} {
		if w := page.do("GET", path, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A request with a session and a wrong token is refused: its sender expects a check.
func TestATokenGoesBeforeASession(t *testing.T) {
	_, page := pageBench(t)
	page.logIn(token)
	r := httptest.NewRequest("GET", "http://127.0.0.1:8889/v1/sandboxes", nil)
	r.AddCookie(page.cookie)
	r.Header.Set("X-Forkd-UI", page.proof)
	r.Header.Set(api.HeaderKey, "wrong")
	w := httptest.NewRecorder()
	page.h.ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("got %d", w.Code)
	}
}

// The secrets of a session reach no server in a sandbox.
func TestTheIngressGetsNoSession(t *testing.T) {
	b := newBench(t)
	var got http.Header
	b.server = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, Keys: b.keys, Page: true,
		Ingress: allIngress{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })}})
	page := &browser{t: t, h: b.server.Handler(auth.Access{Token: token, Keys: b.keys}),
		cookie: &http.Cookie{Name: "forkd-ui", Value: "secret"}, proof: "secret"}
	page.do("GET", "/", "")
	if got == nil || got.Get("Cookie") != "" || got.Get("X-Forkd-UI") != "" {
		t.Errorf("the guest gets %v", got)
	}
}

// allIngress matches every request.
type allIngress struct{ http.Handler }

func (allIngress) Match(*http.Request) bool     { return true }
func (allIngress) Sandbox(*http.Request) string { return "" }
