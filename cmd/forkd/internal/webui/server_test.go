package webui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func request(s *Server, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8890"+path, strings.NewReader(body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func logIn(t *testing.T, s *Server, code string) func(*http.Request) {
	t.Helper()
	w := request(s, "POST", "/ui/session", `{"key": "`+code+`"}`)
	if w.Code != http.StatusOK {
		return nil
	}
	var answer struct{ Proof string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return func(r *http.Request) {
		r.AddCookie(w.Result().Cookies()[0])
		r.Header.Set("X-Forkd-UI", answer.Proof)
	}
}

func TestOnlyLoggedInBrowsersReachTheDaemon(t *testing.T) {
	var reached []string
	s := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.URL.Path)
		if r.Header.Get("Cookie") != "" || r.Header.Get("X-Forkd-UI") != "" {
			t.Errorf("the daemon gets %v", r.Header)
		}
	}))
	if w := request(s, "GET", "/v1/sandboxes", ""); w.Code != http.StatusUnauthorized || w.Header().Get("Forkd-Error") != "unauthorized" {
		t.Errorf("without a session: %d", w.Code)
	}
	if w := request(s, "GET", "/ui/session", ""); w.Code != http.StatusNoContent {
		t.Errorf("without a session: %d", w.Code)
	}
	if w := request(s, "GET", "/ui/", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<html") {
		t.Errorf("the page: %d", w.Code)
	}
	if w := request(s, "GET", "/", ""); w.Header().Get("Location") != "/ui/" {
		t.Errorf("/ leads to %q", w.Header().Get("Location"))
	}
	session := logIn(t, s, strings.ToUpper(s.Code()))
	if session == nil {
		t.Fatal("the code is refused")
	}
	request(s, "GET", "/v1/sandboxes", "", session)
	request(s, "GET", "/ui/session", "", session)
	if strings.Join(reached, " ") != "/v1/sandboxes /ui/session" {
		t.Errorf("reached %v", reached)
	}
	reached = nil
	for _, host := range []string{"evil.example:8890", "evil.example", "10.0.0.1:8890", ""} {
		w := request(s, "GET", "/v1/sandboxes", "", session, func(r *http.Request) { r.Host = host })
		if w.Code != http.StatusMisdirectedRequest {
			t.Errorf("host %q: %d", host, w.Code)
		}
	}
	if reached != nil {
		t.Errorf("another host's name reached %v", reached)
	}
	for _, host := range []string{"localhost:8890", "[::1]:8890", "127.0.0.1"} {
		if w := request(s, "GET", "/ui/", "", func(r *http.Request) { r.Host = host }); w.Code != http.StatusOK {
			t.Errorf("host %q: %d", host, w.Code)
		}
	}
}

func TestCodesCannotBeGuessed(t *testing.T) {
	s := New(http.NotFoundHandler())
	if len(s.Code()) != 9 || s.Code() == New(nil).Code() {
		t.Errorf("code %q", s.Code())
	}
	for range maxWrong {
		if logIn(t, s, "aaaa-aaaa") != nil {
			t.Fatal("a wrong code logs in")
		}
	}
	if logIn(t, s, s.Code()) != nil {
		t.Error("after too many wrong codes, the right one logs in")
	}
	w := request(s, "POST", "/ui/session", `{"key": "x"}`)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "start `forkd ui` again") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
