package webui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/ui"
)

// maxWrong is the number of wrong codes after which no login is accepted any more. A code has 40
// bits.
const maxWrong = 20

// Errors of a login.
var (
	errWrongCode = errors.New("the code is wrong; `forkd ui` has printed it")
	errLocked    = errors.New("too many wrong codes; start `forkd ui` again")
)

// Server serves the page to browsers of this host.
type Server struct {
	code     string
	wrong    atomic.Int32
	sessions ui.Sessions
	page     *ui.Page
	forward  http.Handler
}

// New returns a server that passes requests on to forward.
func New(forward http.Handler) *Server {
	s := &Server{code: newCode(), forward: forward}
	s.page = &ui.Page{Sessions: &s.sessions, LogIn: s.logIn, Identify: s.identify, Refuse: refuse}
	return s
}

// Code returns the code for logging in.
func (s *Server) Code() string { return s.code }

// newCode returns a code that people can type: 8 letters and digits in two groups.
func newCode() string {
	text := strings.ToLower(rand.Text())
	return text[:4] + "-" + text[4:8]
}

// Serve serves until ctx ends. It owns the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP serves the page, and passes requests with a session on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !local(r.Host) { // a page of another site, whose name leads here
		answer(w, http.StatusMisdirectedRequest, api.CodeForbidden, "this server is for localhost and 127.0.0.1 only")
		return
	}
	if r.URL.Path == "/" {
		http.Redirect(w, r, ui.Path, http.StatusTemporaryRedirect)
		return
	}
	shown := s.sessions.Take(r)
	switch {
	case s.page.Serve(w, r, shown):
	case shown.Credential == "":
		answer(w, http.StatusUnauthorized, api.CodeUnauthorized, "nobody is logged in")
	default:
		s.forward.ServeHTTP(w, r)
	}
}

// local reports whether a Host header names this host's loopback.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *Server) logIn(_ *http.Request, code string) error {
	if s.wrong.Load() >= maxWrong {
		return errLocked
	}
	if subtle.ConstantTimeCompare([]byte(strings.ToLower(code)), []byte(s.code)) != 1 {
		s.wrong.Add(1)
		return errWrongCode
	}
	return nil
}

// identify asks the daemon who this user is.
func (s *Server) identify(w http.ResponseWriter, r *http.Request, shown ui.Shown) {
	if shown.Credential == "" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.forward.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, ui.ErrBadLogin):
		answer(w, http.StatusBadRequest, api.CodeInvalid, err.Error())
	case errors.Is(err, ui.ErrForeign), errors.Is(err, errLocked):
		answer(w, http.StatusForbidden, api.CodeForbidden, err.Error())
	default:
		answer(w, http.StatusUnauthorized, api.CodeUnauthorized, err.Error())
	}
}

func answer(w http.ResponseWriter, status int, code api.Code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(api.HeaderError, string(code))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Error{Code: code, Message: message}) // the client may be gone
}
