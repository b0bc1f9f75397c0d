package httpapi

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Routes lists "METHOD /path" of every added route.
func (s *Server) Routes() []string { return s.router.Routes() }

// AuditWriter writes entries immediately.
type AuditWriter struct {
	mu  sync.Mutex
	w   io.Writer
	now func() time.Time
	n   uint64
}

// NewAudit returns an AuditWriter that writes a line per request to w.
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

// Limits are limits for tests, with short timeouts.
type Limits struct {
	Header, Body, Swallow time.Duration
	Waiting               int
	Read                  time.Duration // for the next bytes of a body
	Write                 time.Duration // for a client to read a piece of an answer
	Memory                int64         // of requests in flight
	Beat, Take            time.Duration // of events: interval of keep-alives, and time for a client to read them
}

// NewLimited is New with other limits.
func NewLimited(opt Options, l Limits) *Server {
	most := defaultLimits()
	most.header, most.body, most.deadlines.Rest, most.waiting = l.Header, l.Body, l.Swallow, l.Waiting
	if l.Beat > 0 {
		most.events = daemon.EventPace{Beat: l.Beat, Write: l.Take}
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

// Needs returns the routes with their scopes, for package tenancy.
func Needs() map[string]principal.Scopes {
	out := map[string]principal.Scopes{}
	for route, n := range routing.Needs() {
		out[route] = n.Scope
	}
	return out
}

// OperatorOnly reports whether a route is closed to tenants.
func OperatorOnly(route string) bool { return routing.Needs()[route].Operator }

// Charged returns the memory of requests in flight.
func (s *Server) Charged() int64 { return s.budget.Used() }

// Metric is one gathered metric.
type Metric struct {
	Name, Type string
	Labels     []map[string]string // of each series
}

// GatherMetrics returns the metrics as a scrape does.
func (s *Server) GatherMetrics() ([]Metric, error) {
	all, err := s.metrics.Gatherer().Gather()
	var out []Metric
	for _, f := range all {
		m := Metric{Name: f.GetName(), Type: strings.ToLower(f.GetType().String())}
		for _, series := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			m.Labels = append(m.Labels, labels)
		}
		out = append(out, m)
	}
	return out, err
}
