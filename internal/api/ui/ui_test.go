package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func page() *Page {
	return &Page{Sessions: &Sessions{},
		LogIn: func(_ *http.Request, credential string) error {
			if credential != "right" {
				return errors.New("wrong")
			}
			return nil
		},
		Identify: func(w http.ResponseWriter, _ *http.Request, _ Shown) { w.WriteHeader(http.StatusNoContent) },
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusUnauthorized)
		},
	}
}

// do sends a request to the page, and returns the answer.
func do(p *Page, method, path, body string, change ...func(*http.Request)) (*http.Response, bool) {
	r := httptest.NewRequest(method, "http://127.0.0.1:8889"+path, strings.NewReader(body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	served := p.Serve(w, r, p.Sessions.Take(r))
	return w.Result(), served
}

// logIn returns the two secrets of a new session.
func logIn(t *testing.T, p *Page) (cookie *http.Cookie, proof string) {
	t.Helper()
	resp, _ := do(p, "POST", "/ui/session", `{"key": " right\n"}`)
	var answer struct{ Proof string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != 200 || len(resp.Cookies()) != 1 {
		t.Fatalf("%v, %v, %v", resp.StatusCode, resp.Cookies(), err)
	}
	return resp.Cookies()[0], answer.Proof
}

func showing(cookie *http.Cookie, proof string) *http.Request {
	r := httptest.NewRequest("GET", "http://127.0.0.1:8889/v1/sandboxes", nil)
	if cookie != nil {
		r.AddCookie(cookie)
	}
	if proof != "" {
		r.Header.Set(HeaderProof, proof)
	}
	return r
}

func TestASessionNeedsBothSecrets(t *testing.T) {
	p := page()
	cookie, proof := logIn(t, p)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" || len(cookie.Value) < 43 {
		t.Errorf("cookie %v", cookie)
	}
	other, otherProof := logIn(t, p)
	for _, c := range []struct {
		cookie *http.Cookie
		proof  string
		want   string
	}{{cookie, proof, "right"}, {other, otherProof, "right"}, {cookie, otherProof, ""}, {other, proof, ""}, {nil, proof, ""},
		{cookie, "", ""}, {cookie, "1", ""}, {&http.Cookie{Name: cookieName, Value: "x"}, proof, ""}} {
		r := showing(c.cookie, c.proof)
		r.AddCookie(&http.Cookie{Name: "mine", Value: "kept"})
		if got := p.Sessions.Take(r); got.Credential != c.want {
			t.Errorf("%v %q: got %q", c.cookie, c.proof, got.Credential)
		}
		if r.Header.Get("Cookie") != "mine=kept" || r.Header.Get(HeaderProof) != "" {
			t.Errorf("the request still has %v", r.Header)
		}
	}
}

func TestPagesOfOtherOriginsHaveNoSession(t *testing.T) {
	p := page()
	cookie, proof := logIn(t, p)
	for header, want := range map[[2]string]string{
		{"Origin", "http://127.0.0.1:8889"}: "right", {"Origin", "http://127.0.0.1:9000"}: "", {"Origin", "null"}: "",
		{"Origin", "http://evil.example"}: "", {"Sec-Fetch-Site", "same-origin"}: "right", {"Sec-Fetch-Site", "same-site"}: "",
		{"Sec-Fetch-Site", "cross-site"}: "", {"Sec-Fetch-Site", "none"}: "right",
	} {
		r := showing(cookie, proof)
		r.Header.Set(header[0], header[1])
		if got := p.Sessions.Take(r); got.Credential != want {
			t.Errorf("%v: got %q", header, got.Credential)
		}
	}
	resp, _ := do(p, "POST", "/ui/session", `{"key": "right"}`, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") })
	if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) != 0 {
		t.Errorf("a page of another origin logs in: %v", resp.Status)
	}
}

func TestLogins(t *testing.T) {
	p := page()
	for _, body := range []string{`{"key": "wrong"}`, `{}`, `{"key": ""}`, `right`, "", `{"key": "` + strings.Repeat("x", maxLogin) + `"}`} {
		resp, _ := do(p, "POST", "/ui/session", body)
		if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) != 0 {
			t.Errorf("%.20s: %v", body, resp.Status)
		}
	}
	p.Secure = true
	if cookie, _ := logIn(t, p); !cookie.Secure || !strings.HasPrefix(cookie.Name, "__Host-") {
		t.Errorf("cookie %v", cookie)
	}
}

func TestSessionsEnd(t *testing.T) {
	p := page()
	now := time.Now()
	p.Sessions.now = func() time.Time { return now }
	cookie, proof := logIn(t, p)
	out := func(r *http.Request) { r.AddCookie(cookie); r.Header.Set(HeaderProof, proof) }
	if resp, _ := do(p, "DELETE", "/ui/session", "", out); resp.StatusCode != http.StatusNoContent || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("%v %v", resp.Status, resp.Cookies())
	}
	if p.Sessions.Take(showing(cookie, proof)).Credential != "" {
		t.Error("a session outlives its end")
	}
	cookie, proof = logIn(t, p)
	now = now.Add(lifetime)
	if p.Sessions.Take(showing(cookie, proof)).Credential != "" {
		t.Error("a session outlives its time")
	}
}

func TestSessionsAreLimited(t *testing.T) {
	s := &Sessions{}
	now := time.Now()
	s.now = func() time.Time { now = now.Add(time.Microsecond); return now }
	first, proof := s.start("a")
	for range maxOfOne - 1 {
		s.start("a")
	}
	if _, ok := s.find(first, proof); !ok {
		t.Error("too few sessions of one credential")
	}
	s.start("a")
	if _, ok := s.find(first, proof); ok || len(s.all) != maxOfOne {
		t.Errorf("%d sessions of one credential", len(s.all))
	}
	for i := range maxAll {
		s.start(strings.Repeat("b", 1+i/maxOfOne))
	}
	if len(s.all) > maxAll {
		t.Errorf("%d sessions", len(s.all))
	}
}

func TestFilesOfThePage(t *testing.T) {
	p := page()
	for path, kind := range map[string]string{"/ui/": "text/html; charset=utf-8", "/ui/assets/app.js": "text/javascript; charset=utf-8",
		"/ui/assets/app.css": "text/css; charset=utf-8"} {
		resp, served := do(p, "GET", path, "")
		if !served || resp.Header.Get("Content-Type") != kind || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v %v", path, served, resp.Header)
		}
		tag := func(r *http.Request) { r.Header.Set("If-None-Match", resp.Header.Get("ETag")) }
		if again, _ := do(p, "GET", path, "", tag); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %v", path, again.Status)
		}
	}
	if resp, _ := do(p, "GET", "/ui", ""); resp.Header.Get("Location") != "/ui/" {
		t.Errorf("/ui leads to %q", resp.Header.Get("Location"))
	}
	for _, c := range [][2]string{{"GET", "/ui/nothing"}, {"GET", "/ui/../sessions.go"}, {"GET", "/ui/assets"}, {"POST", "/ui/"},
		{"PUT", "/ui/session"}, {"GET", "/uix"}, {"GET", "/v1/sandboxes"}} {
		if _, served := do(p, c[0], c[1], ""); served {
			t.Errorf("%s %s is served", c[0], c[1])
		}
	}
}

func FuzzTake(f *testing.F) {
	f.Add("forkd-ui=a; b=c", "p", "http://x")
	f.Add("__Host-forkd-ui=\"a\"", "", "::")
	f.Fuzz(func(t *testing.T, cookie, proof, origin string) {
		r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
		r.Header.Set("Cookie", cookie)
		r.Header.Set(HeaderProof, proof)
		r.Header.Set("Origin", origin)
		s := &Sessions{}
		if got := s.Take(r); got.Credential != "" {
			t.Errorf("a session that does not exist: %v", got)
		}
		for _, c := range r.Cookies() {
			if c.Name == cookieName || c.Name == cookieSecure {
				t.Errorf("%q leaves %v", cookie, c)
			}
		}
	})
}
