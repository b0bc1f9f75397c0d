package httpapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// routeIngress routes requests for sandboxes to the ingress. They need no daemon token, and cannot reach a
// route of the API. All other requests go to the API.
func (s *Server) routeIngress(api http.Handler) http.Handler {
	if s.ingress == nil {
		return api
	}
	sandboxes := s.recoverPanics(s.ingress)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.ingress.Match(r):
			defer resetAborted(connOf(r.Context()), r)
			r.Pattern = requestinfo.IngressRoute
			n := requestinfo.From(r.Context())
			n.Principal, n.Sandbox = requestinfo.IngressRoute, ellipsis.Clip(s.ingress.Sandbox(r), 64)
			if err := s.admitGuess(r); err != nil {
				respond.Error(w, apierror.From(err))
				return
			}
			sandboxes.ServeHTTP(w, r)
		case r.ProtoMajor != 1 && !connOf(r.Context()).secure(): // only servers in sandboxes use HTTP/2 without TLS
			respond.Error(w, refusal(http.StatusHTTPVersionNotSupported, ""))
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// resetAborted resets the connection if a handler cuts an answer short.
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

// protocols returns the protocols of a listener. HTTP/2 without TLS is for gRPC in sandboxes. TLS
// ends below the connections of net/http, so net/http sees HTTP/2 over TLS as HTTP/2 without TLS.
func (s *Server) protocols(l Listener) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(s.ingress != nil || l.TLS)
	return p
}
