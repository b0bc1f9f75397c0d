package httpapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// ingressRoute is what requests to sandboxes are called in the metrics, and who sent them
// in the audit log.
const ingressRoute = "ingress"

// part gives requests that are for sandboxes to the ingress. They are neither asked for the
// daemon's token nor can they reach a route of the API; all others are the API's.
func (s *Server) part(api http.Handler) http.Handler {
	if s.ingress == nil {
		return api
	}
	sandboxes := s.survive(s.ingress)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.ingress.Match(r):
			defer resetAborted(connOf(r.Context()), r)
			r.Pattern = ingressRoute
			n := note(r.Context())
			n.principal, n.sandbox = ingressRoute, ellipsis.Clip(s.ingress.Sandbox(r), 64)
			if err := s.admitGuess(r); err != nil {
				writeFailure(w, failureOf(err))
				return
			}
			sandboxes.ServeHTTP(w, r)
		case r.ProtoMajor != 1 && !connOf(r.Context()).secure(): // only sandboxes' servers are spoken to so
			writeFailure(w, refusal(http.StatusHTTPVersionNotSupported, ""))
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// resetAborted resets the connection of an answer that a handler cuts short.
func resetAborted(c *conn, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if c != nil && r.ProtoMajor == 1 {
		c.reset()
	}
	panic(p)
}

// protocols are those of a listener: HTTP/2 without TLS is for gRPC in sandboxes. TLS ends below the
// connections that net/http sees, so that to it HTTP/2 over TLS has none either.
func (s *Server) protocols(l Listener) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(s.ingress != nil || l.TLS)
	return p
}
