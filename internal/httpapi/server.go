package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/events"
)

// Options is what a Server is made of.
type Options struct {
	Engine  Engine
	Images  Images
	Version api.VersionInfo
	// Log gets the daemon's own messages; nil discards them.
	Log *slog.Logger
	// Audit gets an entry for each request; nil: nobody does.
	Audit Audit
	// AuditFile is where that can be read; empty: nowhere.
	AuditFile string
	// Events are what the engine tells of what happens; nil: it tells nothing.
	Events *events.Log
	// Asker says who a request's context is of; nil: the operator asks for everything.
	Asker func(context.Context) Asker
	// GuestFiles are where requests may name files by path; nil: nowhere.
	GuestFiles *GuestFiles
	// Timings are shown with the metrics; nil: there are none.
	Timings *Timings
	// Ingress gets the requests that match it, before the API and its tokens; nil: there are none.
	Ingress Ingress
}

// Ingress is what carries requests to servers in sandboxes.
type Ingress interface {
	http.Handler
	// Match reports whether a request is for a sandbox. It looks at Host and headers only.
	Match(r *http.Request) bool
	// Sandbox is the one that a request is for, if it says so.
	Sandbox(r *http.Request) string
}

// Server serves the routes. It is made once and serves any number of listeners.
type Server struct {
	answers
	askers  askers
	streams *streams
	audit   Audit // may be nil
	metrics *metrics
	router  *router
	limits  limits
	ingress Ingress // may be nil
}

// humaErrors makes huma's own errors ours. The library has only a package
// variable for it; set once, to the same value for any number of servers.
var humaErrors = sync.OnceFunc(func() { huma.NewError = validationFailure })

// New makes a server. It starts nothing.
func New(opt Options) *Server { return newServer(opt, defaultLimits()) }

func newServer(opt Options, most limits) *Server {
	humaErrors()
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Version.API = api.Version
	s := &Server{
		answers: answers{opt.Log}, askers: newAskers(opt.Asker), streams: newStreams(),
		audit: opt.Audit, limits: most, ingress: opt.Ingress,
		metrics: newMetrics(opt.Engine, opt.Version, opt.Timings, opt.Audit),
	}
	s.router = newRouter(s.answers, opt.Version, most.body)
	s.addRoutes(opt)
	return s
}

// addRoutes gives each group of routes that part of the engine which it is about.
func (s *Server) addRoutes(opt Options) {
	created := &creations{s.answers, s.router}
	(&daemonRoutes{opt.Version, s.metrics}).add(s.router)
	(&snapshotRoutes{opt.Engine, opt.GuestFiles, created}).add(s.router)
	(&diffRoutes{opt.Engine}).add(s.router)
	(&storeRoutes{opt.Engine, created}).add(s.router)
	(&forkRoutes{s.answers, opt.Engine, s.metrics}).add(s.router)
	(&sandboxRoutes{opt.Engine}).add(s.router)
	(&branchRoutes{opt.Engine, s.metrics}).add(s.router)
	(&receiptRoutes{opt.Engine}).add(s.router)
	(&guestRoutes{opt.Engine, s.metrics}).add(s.router)
	(&portRoutes{s.answers, opt.Engine}).add(s.router)
	newAgentProxy(s.answers, opt.Engine, opt.Engine).add(s.router)
	(&networkRoutes{opt.Engine}).add(s.router)
	(&poolRoutes{opt.Engine}).add(s.router)
	(&capacityRoutes{opt.Engine}).add(s.router)
	(&imageRoutes{opt.Images}).add(s.router)
	(&auditRoutes{s.askers, s.streams, opt.AuditFile}).add(s.router)
	(&eventRoutes{answers: s.answers, askers: s.askers, streams: s.streams, events: opt.Events,
		pace: s.limits.events}).add(s.router)
}

// OpenAPI returns the document served at /openapi.json.
func (s *Server) OpenAPI() ([]byte, error) { return s.router.api.OpenAPI().MarshalJSON() }
