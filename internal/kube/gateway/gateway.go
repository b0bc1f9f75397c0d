package gateway

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
)

// Config are the settings of a gateway.
type Config struct {
	// Nodes are the nodes, and Board their facts.
	Nodes *nodes.Set
	// Board chooses the nodes of new sandboxes.
	Board *placement.Board
	// Domain is the domain of the host names of sandboxes' ports. If it is empty, only host names with the id of a
	// sandbox are recognised.
	Domain string
	// TemplateTag returns the tag of the snapshot for the name of a template in E2B's API, or an empty string for an
	// invalid name. Default: the name before the first colon.
	TemplateTag func(name string) string
	// MaxRequests is the number of requests served at the same time, streams and connections included. Default 4096.
	MaxRequests int
	// MaxBuffered limits the bytes of request bodies and answers in memory. Default 256 MiB.
	MaxBuffered int64
	// AnswerTime is the time for a node to begin its answer to a fork. Default 1 min.
	AnswerTime time.Duration
	// ListTime is the time for a node to begin its part of a list. Default 5 s.
	ListTime time.Duration
	// CopyTime is the time for a node to copy a snapshot from others. Default 10 min.
	CopyTime time.Duration
	// ResumeKey is a key of the nodes. With it, the gateway resumes paused sandboxes at other nodes for requests to ports,
	// which have no credential. If it is empty, such sandboxes wait for their nodes.
	ResumeKey string
	// BodyTime is the time for a JSON body to arrive. Default 30 s.
	BodyTime time.Duration
	// Stall is the time for a client to take the next bytes of an answer. Default 30 s.
	Stall time.Duration
	// Metrics receives the gateway's metrics. If it is nil, they are not shown.
	Metrics prometheus.Registerer
	// Log receives the gateway's messages. If nil, they are discarded.
	Log *slog.Logger
}

// restTime is the time for the rest of a request after its answer.
const restTime = 5 * time.Second

// Gateway serves requests for all nodes.
type Gateway struct {
	cfg      Config
	proxy    *httputil.ReverseProxy
	turns    chan struct{} // one element per request in progress
	buffered atomic.Int64
	hints    hints // nodes of new snapshots
	keys     hints // nodes of requests with a client's own Idempotency-Key
	moved    hints // nodes of sandboxes that have left the node of their id
	searches searches
	lookups  queue
	proven   hints // credentials that a node has accepted
	wakes    wakes
	metrics  *metrics
	cleaning sync.WaitGroup // sandboxes being ended after a broken fork
	closing  atomic.Bool
}

// New returns a gateway. It starts no goroutine.
func New(c Config) *Gateway {
	c.MaxRequests = cmp.Or(c.MaxRequests, 4096)
	c.MaxBuffered = cmp.Or(c.MaxBuffered, 256<<20)
	c.AnswerTime = cmp.Or(c.AnswerTime, time.Minute)
	c.ListTime = cmp.Or(c.ListTime, 5*time.Second)
	c.CopyTime = cmp.Or(c.CopyTime, 10*time.Minute)
	c.BodyTime = cmp.Or(c.BodyTime, 30*time.Second)
	c.Stall = cmp.Or(c.Stall, 30*time.Second)
	if c.TemplateTag == nil {
		c.TemplateTag = bareName
	}
	c.Domain = strings.ToLower(strings.Trim(c.Domain, "."))
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{cfg: c, turns: make(chan struct{}, c.MaxRequests), metrics: newMetrics(c.Metrics),
		searches: searches{queue: newQueue(searchShares)},
		lookups:  newQueue(lookupShares),
		wakes:    wakes{turns: make(chan struct{}, mostWakes)}}
	g.proxy = g.reverseProxy()
	return g
}

// Close makes the gateway unready. Requests are served further.
func (g *Gateway) Close() { g.closing.Store(true) }

// Wait waits until the gateway has ended the sandboxes of broken forks.
func (g *Gateway) Wait() { g.cleaning.Wait() }

// ServeHTTP serves one request.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: rw, rc: http.NewResponseController(rw), stall: g.cfg.Stall}
	switch r.URL.Path {
	case "/healthz":
		writeJSON(w, http.StatusOK, api.Health{OK: true})
		return
	case "/readyz":
		g.ready(w, r)
		return
	}
	t := targetOf(r, g.cfg.Domain)
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	default:
		g.metrics.requests.WithLabelValues(t.kind.String(), "503").Inc()
		g.refuse(w, r, failf(api.CodeBusy, "", "the gateway serves %d requests already", g.cfg.MaxRequests))
		return
	}
	g.metrics.inFlight.Inc()
	defer func() {
		g.metrics.inFlight.Dec()
		g.metrics.requests.WithLabelValues(t.kind.String(), w.class()).Inc()
	}()
	g.serve(w, r, t)
}

func (g *Gateway) serve(w *writer, r *http.Request, t target) {
	if r.Method == http.MethodConnect || strings.Contains(r.Method, "TRACE") {
		g.refuse(w, r, failf(api.CodeMethod, "", "the gateway does not serve %s", r.Method))
		return
	}
	if r.URL.Opaque != "" {
		g.refuse(w, r, failf(api.CodeInvalid, "", "the request has no path"))
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		w.body = &intake{ReadCloser: r.Body, rc: w.rc, rest: restTime}
		r.Body = w.body
		defer w.body.Close()
	}
	switch t.kind {
	case toSandbox:
		g.toSandbox(w, r, t)
	case toFork:
		g.fork(w, r)
	case toCreate:
		g.create(w, r, t)
	case toMake:
		g.makeSnapshot(w, r)
	case toWorkspace:
		g.makeWorkspace(w, r)
	case toList:
		g.list(w, r, t)
	case toPages:
		g.pages(w, r)
	case toEvents:
		g.events(w, r)
	case toObject:
		g.object(w, r, t)
	case toKeep:
		g.keep(w, r)
	case toNode:
		g.toNode(w, r)
	default:
		g.toAny(w, r)
	}
}

// ready answers without a credential, so it names no node.
func (g *Gateway) ready(w *writer, r *http.Request) {
	switch err := g.cfg.Nodes.Ready(); {
	case g.closing.Load():
		g.refuse(w, r, failf(api.CodeClosing, "", "the gateway is shutting down"))
	case err != nil:
		g.cfg.Log.Debug("not ready", "error", err)
		f := failf(api.CodeNoResources, api.ReasonNoNode, "the gateway is not ready: its log has the reason")
		g.refuse(w, r, f)
	default:
		writeJSON(w, http.StatusOK, api.Readiness{Ready: true})
	}
}
