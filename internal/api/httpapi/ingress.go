package httpapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/listen"
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
			defer resetAborted(listen.ConnOf(r.Context()), r)
			r.Pattern = requestinfo.IngressRoute
			n := requestinfo.From(r.Context())
			n.Principal, n.Sandbox = requestinfo.IngressRoute, ellipsis.Clip(s.ingress.Sandbox(r), 64)
			if err := s.admitGuess(r); err != nil {
				respond.Error(w, apierror.From(err))
				return
			}
			sandboxes.ServeHTTP(w, r)
		case r.ProtoMajor != 1 && !listen.ConnOf(r.Context()).Secure(): // only servers in sandboxes use HTTP/2 without TLS
			respond.Error(w, listen.Refusal(http.StatusHTTPVersionNotSupported, ""))
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// resetAborted resets the connection if a handler cuts an answer short.
func resetAborted(c *listen.Conn, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if c != nil && r.ProtoMajor == 1 {
		c.Reset()
	}
	panic(p)
}
