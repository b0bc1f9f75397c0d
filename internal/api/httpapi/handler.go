package httpapi

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/intake"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/leaf/membudget"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// Handler serves all routes to clients of one kind of listener.
func (s *Server) Handler(access auth.Access) http.Handler {
	routes := s.serveProfiles(access, http.HandlerFunc(s.router.Dispatch))
	known := s.servePage(access, auth.Require(s.Authenticator(access), s.answers, s.noteAsker(routes)))
	api := s.drainBody(s.recoverPanics(s.serveIssuer(known)))
	return s.observe(s.takeSession(s.routeIngress(s.setRequestID(s.crossOrigin(api)))))
}

// crossOrigin answers preflight requests, which never show a key.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.cors.Handle(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// setRequestID sets the IDs of the request and its trace in the answer's header. It leaves the answers of servers in sandboxes
// unchanged.
func (s *Server) setRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderRequestID, requestinfo.ID(r.Context()))
		if id := requestinfo.From(r.Context()).Trace.TraceID(); id != "" {
			w.Header().Set(api.HeaderTraceID, id)
		}
		next.ServeHTTP(w, r)
	})
}

// recoverPanics turns a panic of a handler into a 500, unless a part of the answer was already sent.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // not wrapped: it is how an answer is cut short
				panic(p)
			}
			s.answers.Log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p,
				requestinfo.From(r.Context()).LogAttr(), "stack", string(debug.Stack()))
			if rec, ok := w.(*recorder); ok && rec.status == 0 {
				respond.Error(w, apierror.New(api.CodeInternal, "", "the daemon hit a bug while serving the request"))
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
		c := listen.ConnOf(r.Context())
		c.Handle()
		out, r := iodeadline.New(w, r, s.limits.deadlines)
		n := &requestinfo.Info{ID: requestinfo.NewID(), Trace: tracecontext.FromHeader(r.Header),
			Control: http.NewResponseController(out)}
		// The mux stores pattern and path values in this request.
		account := s.budget.Account(reply.Max)
		r = r.WithContext(membudget.With(requestinfo.With(r.Context(), n), account))
		r, span := s.beginSpan(r, n, began)
		rec := &recorder{ResponseWriter: out}
		defer func() {
			account.Close()
			c.KeepDeadline(out.Finish())
			took := time.Since(began)
			if n.Routed != nil {
				r = n.Routed
			}
			endSpan(span, r, n, rec)
			s.metrics.Request(r, n, rec.sent(), rec.Header(), took)
			s.audit.Record(r, n, rec.sent(), took)
		}()
		next.ServeHTTP(rec, r)
	})
}

// noteAsker records the request's sender for the audit log. Package auth has put the sender into the
// context.
func (s *Server) noteAsker(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requestinfo.From(r.Context())
		n.Asker, n.Routed = s.askers.Of(r.Context()), r
		next.ServeHTTP(w, r)
	})
}

// recorder remembers the status of the answer. It holds back an error until it is whole if the
// client has not sent all of its request. The error then has its length, so the client can read it
// before the connection ends.
type recorder struct {
	http.ResponseWriter
	status int
	body   *intake.Body // the request's body; nil if it has none
	held   *bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	if r.status != 0 {
		r.ResponseWriter.WriteHeader(status) // net/http logs the mistake
		return
	}
	if status >= 200 || status == http.StatusSwitchingProtocols {
		r.status = status
	}
	if status >= 400 && r.body != nil && !r.body.Ended() {
		r.Header().Set("Connection", "close")
		if r.Header().Get("Content-Type") == "application/json" && r.Header().Get("Content-Length") == "" {
			r.held = new(bytes.Buffer)
			return
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.held != nil {
		if r.held.Len()+len(b) <= maxHeld {
			return r.held.Write(b)
		}
		if err := r.FlushError(); err != nil {
			return 0, err
		}
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// maxHeld is larger than any error of the daemon, in bytes. An answer of a guest's agent may be
// longer.
const maxHeld = 64 << 10

// finish sends the held data as a complete answer.
func (r *recorder) finish() {
	if r.held == nil {
		return
	}
	r.Header().Set("Content-Length", strconv.Itoa(r.held.Len()))
	_ = r.letGo()
}

// letGo sends the held data of an answer of unknown length.
func (r *recorder) letGo() error {
	if r.held == nil {
		return nil
	}
	held := r.held.Bytes()
	r.held = nil
	r.ResponseWriter.WriteHeader(r.status)
	_, err := r.ResponseWriter.Write(held) // #nosec G705 -- an answer of a handler, with its media type
	return err
}

// FlushError implements the interface that http.ResponseController calls.
func (r *recorder) FlushError() error {
	if err := r.letGo(); err != nil {
		return err
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack takes over the connection for a protocol other than HTTP.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rest, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status = http.StatusSwitchingProtocols
	}
	return c, rest, err
}

// Unwrap gives http.ResponseController access to the other methods.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) sent() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
