package ui

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxLogin limits the body of a login, in bytes.
const maxLogin = 8 << 10

// Identity tells the page who uses it.
type Identity struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"` // empty: the operator
	Admin  bool   `json:"admin"`
}

// Page serves the page to the clients of one listener.
type Page struct {
	// Sessions are the server's. They may be shared by several pages.
	Sessions *Sessions
	// Secure is set if the listener encrypts.
	Secure bool
	// LogIn checks a credential.
	LogIn func(r *http.Request, credential string) error
	// Identify answers with the Identity of the sender of a request, or with 204 if it is nobody.
	Identify func(w http.ResponseWriter, r *http.Request, shown Shown)
	// Refuse answers with an error of LogIn, or with ErrBadLogin.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
}

// Errors of a login.
var (
	ErrBadLogin = errors.New(`want a JSON object with one field: {"key": "..."}`)
	ErrForeign  = errors.New("the request comes from a page of another origin")
)

// Serve answers requests for the page and its session. It reports whether the path is one of them.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, shown Shown) bool {
	if r.URL.Path == strings.TrimSuffix(Path, "/") {
		http.Redirect(w, r, Path, http.StatusPermanentRedirect)
		return true
	}
	name, ok := strings.CutPrefix(r.URL.Path, Path)
	if !ok {
		return false
	}
	if name == "session" {
		return p.session(w, r, shown)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return serveFile(w, r, name)
}

func (p *Page) session(w http.ResponseWriter, r *http.Request, shown Shown) bool {
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet:
		p.Identify(w, r, shown)
	case http.MethodPost:
		p.logIn(w, r)
	case http.MethodDelete:
		p.Sessions.end(shown.cookie)
		http.SetCookie(w, p.cookie("", -1))
		w.WriteHeader(http.StatusNoContent)
	default:
		return false
	}
	return true
}

// logIn starts a session. Its answer has the proof, and the cookie in a header.
func (p *Page) logIn(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		p.Refuse(w, r, ErrForeign)
		return
	}
	var body struct {
		Key string `json:"key"`
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err != nil || json.Unmarshal(b, &body) != nil || body.Key == "" {
		p.Refuse(w, r, ErrBadLogin)
		return
	}
	key := strings.TrimSpace(body.Key)
	if err := p.LogIn(r, key); err != nil {
		p.Refuse(w, r, err)
		return
	}
	cookie, proof := p.Sessions.start(key)
	http.SetCookie(w, p.cookie(cookie, int(lifetime.Seconds())))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"proof": proof}) // the client may be gone
}

func (p *Page) cookie(value string, age int) *http.Cookie {
	// #nosec G124 -- Secure is set wherever the listener encrypts
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: p.Secure}
	if p.Secure {
		c.Name = cookieSecure
	}
	return c
}
