package httpapi

import (
	"net/http"
	"runtime/debug"
	"time"

	"github.com/forkd/forkd/api"
)

// Access is how a listener's clients are told from others.
type Access struct {
	// Token is asked for if not empty.
	Token string
	// Local is for a Unix socket: its file mode decides who may connect, and no
	// browser can.
	Local bool
}

// Handler serves all routes to clients of one kind of listener.
func (s *Server) Handler(access Access) http.Handler {
	var h http.Handler = http.HandlerFunc(s.dispatch)
	switch {
	case access.Local:
		h = localPrincipal(h)
	case access.Token != "":
		h = s.requireToken(access.Token, h)
	default:
		h = s.refuseBrowsers(h)
	}
	return s.observe(s.survive(h))
}

func localPrincipal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r.Context()).principal = "local"
		next.ServeHTTP(w, r)
	})
}

// dispatch answers what the mux would answer in its own words.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if !cleanPath(r.URL.Path) {
		s.writeFailure(w, s.failed(r.Context(), fail(api.CodeInvalid, "", "the path is not in its shortest form")))
		return
	}
	h, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.notRouted(w, r, h)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// survive turns a panic of a handler into a 500, if nothing was sent yet.
func (s *Server) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { // the way to cut an answer short
				panic(p)
			}
			s.log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if rec, ok := w.(*recorder); ok && rec.status == 0 {
				s.writeFailure(w, fail(api.CodeInternal, defaultHint(api.CodeInternal), "the daemon hit a bug while serving the request"))
				return
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

// observe measures and records every request.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		n := new(notes)
		// The mux leaves pattern and path values in this very request.
		r = r.WithContext(withNotes(r.Context(), n))
		rec := &recorder{ResponseWriter: w}
		defer func() {
			took := time.Since(began)
			s.metrics.request(r.Method, r.Pattern, rec.sent(), took)
			s.record(r, n, rec.sent(), took)
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder remembers the status that was sent.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) sent() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
