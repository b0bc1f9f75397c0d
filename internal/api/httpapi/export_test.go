package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/principal"
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

// AuditWriter writes entries as they are, at once.
type AuditWriter struct {
	mu  sync.Mutex
	w   io.Writer
	now func() time.Time
	n   uint64
}

// NewAudit writes a line per request to w.
func NewAudit(w io.Writer, now func() time.Time) *AuditWriter { return &AuditWriter{w: w, now: now} }

// Add writes a line.
func (a *AuditWriter) Add(e audit.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Time = a.now().UTC()
	a.n++
	if err := json.NewEncoder(a.w).Encode(e); err != nil {
		panic(err)
	}
}

// Stats counts the lines.
func (a *AuditWriter) Stats() audit.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return audit.Stats{Written: a.n}
}

// Changes are the routes that have a name in the audit log.
func Changes() map[string]bool {
	all := map[string]bool{}
	for route := range changes() {
		all[route] = true
	}
	return all
}

// Limits are those of a test, where what never comes must not take long.
type Limits struct {
	Header, Body, Swallow time.Duration
	Waiting               int
	Read                  time.Duration // for the next bytes of a body
	Write                 time.Duration // for a client to take a piece of an answer
	Memory                int64         // of requests in flight
	Beat, Take            time.Duration // of events: between signs of life, and for a client to take them
}

// NewLimited is New with other limits.
func NewLimited(opt Options, l Limits) *Server {
	most := defaultLimits()
	most.header, most.body, most.deadlines.Rest, most.waiting = l.Header, l.Body, l.Swallow, l.Waiting
	if l.Beat > 0 {
		most.events = eventPace{beat: l.Beat, write: l.Take}
	}
	if l.Memory > 0 {
		most.memory = l.Memory
	}
	if l.Read > 0 {
		most.deadlines.Read = l.Read
	}
	if l.Write > 0 {
		most.deadlines.Write = l.Write
	}
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

// Charged returns the memory of requests in flight.
func (s *Server) Charged() int64 { return s.budget.Used() }
