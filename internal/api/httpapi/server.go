package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/workspace"
	"github.com/forkd/forkd/internal/leaf/membudget"
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
	// CORS lists the origins whose pages may call the API.
	CORS cors.Policy
	// Keys are made and ended by routes; nil: there are none. Which listeners take them, their
	// Access says.
	Keys *keys.Store
	// Published are the snapshots that all tenants may fork from; nil: none, and none can be.
	Published *tenancy.Published
	// Weights are the shares of CPU time that tenants have; nil: each has the default.
	Weights *tenancy.Weights
	// Workspaces are the original's: sandboxes under names; nil: there are none, and none can be.
	Workspaces *workspace.Book
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
	tenants *tenancy.Tenancy
	limits  limits
	budget  *membudget.Budget
	ingress Ingress // may be nil
	cors    cors.Policy
	// exists finds a sandbox of any owner; ids that do not exist are guesses.
	exists func(id string) (sandbox.Info, error)
	misses misses
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
		audit: opt.Audit, limits: most, ingress: opt.Ingress, cors: opt.CORS, exists: opt.Engine.Get,
		budget:  membudget.New(most.memory),
		metrics: newMetrics(opt.Engine, opt.Version, opt.Timings, opt.Audit),
	}
	shared := tenancy.Config{Published: opt.Published}
	if opt.Keys != nil {
		shared.Quotas, shared.Alive, shared.HostPorts = opt.Keys.Quotas, opt.Keys.Alive, opt.Keys.HostPorts
	}
	if u, ok := opt.Ingress.(interface{ HeldBytes(tenant string) int64 }); ok {
		shared.Held = u.HeldBytes
	}
	tenants := tenancy.New(opt.Engine, shared)
	opt.Engine = nil // routes reach it through a view
	view := func(ctx context.Context) Engine { return tenants.For(ctx) }
	s.tenants = tenants
	s.router = newRouter(s.answers, opt.Version, most.body, view, opt.Keys)
	if opt.Workspaces == nil {
		opt.Workspaces = workspace.Nowhere()
	}
	s.router.workspaces = opt.Workspaces
	s.addRoutes(opt, view)
	(&publishRoutes{tenants}).add(s.router)
	(&tenantRoutes{opt.Weights}).add(s.router)
	return s
}

var _ Engine = (*tenancy.View)(nil)

// View is the engine as who asks in a context may see it, for handlers of other APIs that are
// served beside this one; quotas are counted together.
func (s *Server) View(ctx context.Context) Engine { return s.tenants.For(ctx) }

// KeyName is the name of a key; empty: there is none of that id.
func (s *Server) KeyName(id string) string {
	if s.router.keys == nil {
		return ""
	}
	k, err := s.router.keys.Get(id)
	if err != nil {
		return ""
	}
	return k.Name
}

// AdmitGuest lets a guest fork n children of its sandbox within the quotas that those count in.
// release is called when they are listed, or are not going to be.
func (s *Server) AdmitGuest(ctx context.Context, of sandbox.Info, n int) (release func(), err error) {
	return s.tenants.AdmitGuest(ctx, of, n)
}

// shown is a part of the engine, as who asks in a context may see it.
type shown[T any] func(context.Context) T

// partOf is that part which a group of routes is about.
func partOf[T any](view func(context.Context) Engine) shown[T] {
	return func(ctx context.Context) T { return any(view(ctx)).(T) } // T is one of the interfaces that Engine has
}

// addRoutes gives each group of routes that part of the engine which it is about.
func (s *Server) addRoutes(opt Options, view func(context.Context) Engine) {
	created := &creations{s.answers, s.router}
	(&daemonRoutes{opt.Version, s.metrics}).add(s.router)
	(&snapshotRoutes{partOf[Snapshots](view), opt.GuestFiles, created}).add(s.router)
	(&diffRoutes{partOf[Diffs](view)}).add(s.router)
	(&storeRoutes{partOf[Snapshots](view), created}).add(s.router)
	(&forkRoutes{s.answers, partOf[Sandboxes](view), s.metrics}).add(s.router)
	(&sandboxRoutes{partOf[Sandboxes](view)}).add(s.router)
	(&workspaceRoutes{partOf[Sandboxes](view), opt.Workspaces}).add(s.router)
	(&branchRoutes{partOf[Branches](view), s.metrics}).add(s.router)
	(&receiptRoutes{partOf[Receipts](view)}).add(s.router)
	(&guestRoutes{partOf[Guests](view), s.metrics}).add(s.router)
	(&portRoutes{s.answers, partOf[Guests](view)}).add(s.router)
	newAgentProxy(s.answers, partOf[Sandboxes](view), partOf[Guests](view)).add(s.router)
	(&networkRoutes{partOf[Networks](view)}).add(s.router)
	(&poolRoutes{partOf[Pools](view)}).add(s.router)
	(&capacityRoutes{partOf[Hosts](view)}).add(s.router)
	(&imageRoutes{opt.Images}).add(s.router)
	(&keyRoutes{opt.Keys, time.Now}).add(s.router)
	(&auditRoutes{s.askers, s.streams, opt.AuditFile}).add(s.router)
	(&eventRoutes{answers: s.answers, askers: s.askers, streams: s.streams, events: opt.Events,
		pace: s.limits.events, followers: newFollowers()}).add(s.router)
}

// OpenAPI returns the document served at /openapi.json.
func (s *Server) OpenAPI() ([]byte, error) { return s.router.api.OpenAPI().MarshalJSON() }
