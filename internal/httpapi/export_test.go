package httpapi

import (
	"context"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/principal"
)

// Routes lists "METHOD /path" of everything that was added.
func (s *Server) Routes() []string { return s.router.added }

// SentinelCodes are the codes that the domain's errors map to.
func SentinelCodes() []api.Code {
	var out []api.Code
	for _, row := range sentinels() {
		out = append(out, row.code)
	}
	return out
}

// Limits are those of a test, where what never comes must not take long.
type Limits struct {
	Header, Body, Swallow time.Duration
	Waiting               int
}

// NewLimited is New with other limits.
func NewLimited(opt Options, l Limits) *Server {
	most := defaultLimits()
	most.header, most.body, most.swallowTime, most.waiting = l.Header, l.Body, l.Swallow, l.Waiting
	return newServer(opt, most)
}

// PeerContext is the context of a request that came over a Unix socket.
func PeerContext(ctx context.Context, uid uint32) context.Context {
	return context.WithValue(ctx, peerKey{}, uid)
}

// Needs are the routes that package tenancy's scopes are known of.
func Needs() map[string]principal.Scopes {
	out := map[string]principal.Scopes{}
	for route, n := range needs() {
		out[route] = n.scope
	}
	return out
}

// OperatorOnly reports whether a route is no tenant's.
func OperatorOnly(route string) bool { return needs()[route].operator }
