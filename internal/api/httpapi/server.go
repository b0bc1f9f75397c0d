package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/api/routes/guests"
	"github.com/forkd/forkd/internal/api/routes/images"
	"github.com/forkd/forkd/internal/api/routes/sandboxes"
	"github.com/forkd/forkd/internal/api/routes/snapshots"
	"github.com/forkd/forkd/internal/api/routes/tenants"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/ui"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/idtoken"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/domain/workspace"
	"github.com/forkd/forkd/internal/leaf/membudget"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// Options are the parts of a Server.
type Options struct {
	// Engine is the whole engine. Each request reaches it through a tenant's view.
	Engine roles.Engine
	// KVM returns an error if the KVM device cannot be opened. If nil, it is not checked.
	KVM func() error
	// Images is the image store of the image routes.
	Images images.Store
	// Version is reported to clients. New sets its API field.
	Version api.VersionInfo
	// Log receives the daemon's own messages. If nil, they are discarded.
	Log *slog.Logger
	// Audit receives an entry for each request. May be nil.
	Audit auditing.Log
	// AuditFile is the path of the audit log for reading. If empty, the log cannot be read.
	AuditFile string
	// Events is the log of the engine's events. If nil, there are no events.
	Events *events.Log
	// Asker returns the sender of a context's request. If nil, every request is the operator's.
	Asker func(context.Context) requestinfo.Asker
	// GuestFiles are the folders from which requests may name files by path. If nil, there are
	// none.
	GuestFiles *snapshots.GuestFiles
	// Timings are shown with the metrics. May be nil.
	Timings *metrics.Timings
	// Ingress receives the requests that match it, before the API and its authentication. May be
	// nil.
	Ingress Ingress
	// CORS lists the origins whose pages may call the API.
	CORS cors.Policy
	// Keys stores the keys that routes make and revoke. If nil, there are no keys. The Access of
	// each listener decides whether it accepts keys.
	Keys *keys.Store
	// Secrets returns the secrets of guests that exist now. Snapshots with one of them are not sent. It may be nil.
	Secrets func() []string
	// SecretStore holds the tenants' named secrets. If nil, the daemon keeps no secrets.
	SecretStore *secrets.Store
	// Volumes holds the tenants' volumes. Without a store the daemon has none.
	Volumes volumes.Tenants
	// Networks holds the tenants' private networks. If nil, the daemon has none.
	Networks *privatenets.Store
	// Published lists the snapshots all tenants may fork. If nil, publishing is disabled.
	Published *tenancy.Published
	// Weights are the tenants' shares of CPU time. If nil, each tenant has the default.
	Weights *tenancy.Weights
	// Node is the daemon's place in a cluster.
	Node daemon.Node
	// Peers reads snapshots from other daemons. If nil, copies are refused.
	Peers *peers.Client
	// E2B has the facts of E2B's API about sandboxes, which go along when one moves to another daemon. It may be nil.
	E2B sandboxes.Carrier
	// Drain refuses new sandboxes during maintenance. If nil, a drain has no effect on the engine.
	Drain *drain.Drain
	// Traces receives spans of requests and operations. If nil, there are none.
	Traces Traces
	// Page enables the web page.
	Page bool
	// Identity is the issuer of identity tokens. If nil, the daemon has none.
	Identity *idtoken.Issuer
	// Retention has the default rules for snapshots of sandboxes.
	Retention retention.Policy
	// Workspaces are the original's workspaces: sandboxes under names. If nil, workspaces are
	// disabled.
	Workspaces *workspace.Book
}

// Ingress carries requests to servers in sandboxes.
type Ingress interface {
	http.Handler
	// Match reports whether a request is for a sandbox. It reads only Host and headers.
	Match(r *http.Request) bool
	// Sandbox returns the sandbox a request names, or "".
	Sandbox(r *http.Request) string
}

// Server serves the routes. One Server can serve any number of listeners.
type Server struct {
	answers respond.Answers
	askers  auth.Askers
	streams *daemon.Streams
	audit   *auditing.Recorder
	metrics *metrics.Metrics
	router  *routing.Router
	keys    *keys.Store // may be nil
	tenants *tenancy.Tenancy
	limits  limits
	budget  *membudget.Budget
	ingress Ingress // may be nil
	cors    cors.Policy
	// identity is the issuer of identity tokens; nil without one.
	identity *idtoken.Issuer
	tracer   trace.Tracer // nil without traces
	// sessions are those of the web page; nil without it.
	sessions *ui.Sessions
	node     string // the name of the daemon's node, or empty
	mover    *sandboxes.Mover
	// exists finds a sandbox of any owner. IDs of missing sandboxes count as guesses.
	exists func(id string) (sandbox.Info, error)
	misses misses
}

// humaErrors replaces huma's errors by ours. The library has only a package variable for this. It
// is set once, to the same value for any number of servers.
var humaErrors = sync.OnceFunc(func() { huma.NewError = apierror.Validation })

// New returns a server. It starts no goroutine.
func New(opt Options) *Server { return newServer(opt, defaultLimits()) }

func newServer(opt Options, most limits) *Server {
	humaErrors()
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Version.API = api.Version
	if opt.Drain == nil {
		opt.Drain = drain.Open(drain.Config{List: opt.Engine.Sandboxes.List})
	}
	s := &Server{
		answers: respond.Answers{Log: opt.Log}, askers: auth.NewAskers(opt.Asker), streams: daemon.NewStreams(),
		limits: most, ingress: opt.Ingress, cors: opt.CORS, identity: opt.Identity,
		keys: opt.Keys, exists: opt.Engine.Sandboxes.Get, budget: membudget.New(most.memory), node: opt.Node.Name,
		metrics: metrics.New(metricsConfig(opt)),
	}
	shared := tenancy.Config{Published: opt.Published, Retention: opt.Retention}
	if opt.SecretStore != nil {
		shared.Secrets = secrets.Source{Store: opt.SecretStore}
	}
	if opt.Keys != nil {
		shared.Quotas, shared.Alive, shared.HostPorts = opt.Keys.Quotas, opt.Keys.Alive, opt.Keys.HostPorts
	}
	if u, ok := opt.Ingress.(interface{ HeldBytes(tenant string) int64 }); ok {
		shared.Held = u.HeldBytes
	}
	whole := s.metrics.Measured(opt.Engine)
	if opt.Traces != nil {
		s.tracer = opt.Traces.Tracer()
		whole = withSpans(whole, s.tracer)
	}
	s.tenants = tenancy.New(whole, shared)
	if opt.Page {
		s.sessions = &ui.Sessions{}
	}
	host := opt.Engine.Hosts
	opt.Engine = roles.Engine{} // routes reach it through a view
	view := routing.View(func(ctx context.Context) roles.Engine { return s.tenants.For(ctx).Engine })
	if opt.Workspaces == nil {
		opt.Workspaces = workspace.Nowhere()
	}
	s.router = routing.New(s.answers, opt.Version, most.body, routing.Objects{View: view, Workspaces: opt.Workspaces,
		Key: func(who principal.Principal, id string) error {
			_, err := tenants.KeyOf(opt.Keys, who, id)
			return err
		}})
	s.audit = auditing.NewRecorder(opt.Audit, opt.Log, s.router.Mux())
	if opt.SecretStore == nil {
		opt.SecretStore = secrets.Off()
	}
	s.mover = sandboxes.NewMover(sandboxes.MoverConfig{Peers: opt.Peers, E2B: opt.E2B, Exists: s.exists, Log: opt.Log,
		Node: opt.Node.Name})
	s.addRoutes(opt, view, host)
	return s
}

// metricsConfig returns the parts that the metrics are about.
func metricsConfig(opt Options) metrics.Config {
	c := metrics.Config{Engine: opt.Engine, Version: opt.Version, Drain: opt.Drain, Fetched: opt.Peers.FetchedBytes,
		Timings: opt.Timings, Audit: opt.Audit, Traces: opt.Traces}
	if opt.Images != nil {
		c.ImageBytes = func(ctx context.Context) (sum int64, err error) {
			images, err := opt.Images.ListImages(ctx)
			for _, i := range images {
				sum += i.SizeBytes
			}
			return sum, err
		}
	}
	return c
}

// View returns the engine as the sender of a context's request may see it. Handlers of other APIs
// on the same daemon use it. Their requests count in the same quotas.
func (s *Server) View(ctx context.Context) *tenancy.View { return s.tenants.For(ctx) }

// FetchSandbox takes a paused sandbox from the first of the daemons with these URLs that has it, unless it is here, or
// ends an earlier attempt. A missing sandbox is no error.
func (s *Server) FetchSandbox(ctx context.Context, id string, peers []string) error {
	return s.mover.Fetch(ctx, s.tenants.For(ctx).Sandboxes, id, peers)
}

// Authenticator returns a function to authenticate requests. The returned context has the
// principal. Handlers of other APIs on the same daemon use it.
func (s *Server) Authenticator(access auth.Access) func(*http.Request) (context.Context, error) {
	authenticate := auth.Authenticator{Askers: s.askers, Charge: chargeBody}.For(access)
	return func(r *http.Request) (context.Context, error) {
		ctx, err := authenticate(r)
		if err != nil {
			return nil, err
		}
		return wire.WithNode(ctx, s.node), nil
	}
}

// KeyName returns the name of a key. It is empty if no key has the ID.
func (s *Server) KeyName(id string) string {
	if s.keys == nil {
		return ""
	}
	k, err := s.keys.Get(id)
	if err != nil {
		return ""
	}
	return k.Name
}

// AdmitGuest checks the quotas for a guest that forks n children of its sandbox. The caller must
// call release when the children are listed, or when they will not be.
func (s *Server) AdmitGuest(ctx context.Context, of sandbox.Info, n int) (release func(), err error) {
	return s.tenants.AdmitGuest(ctx, of, n)
}

// addRoutes gives each family of routes its parts. host is the engine's own part, without a tenant.
func (s *Server) addRoutes(opt Options, view routing.View, host roles.Hosts) {
	publish := func(ctx context.Context, tag string, public bool) (sandbox.SnapshotInfo, error) {
		return s.tenants.For(ctx).Publish(ctx, tag, public)
	}
	sandboxes.Routes{Answers: s.answers, View: view, Mover: s.mover, Workspaces: opt.Workspaces}.Add(s.router)
	snapshots.Routes{Answers: s.answers, View: view, Files: opt.GuestFiles, Secrets: opt.Secrets, E2B: opt.E2B,
		Peers: opt.Peers, Publish: publish, Sent: s.metrics.Sent, Workspaces: opt.Workspaces}.Add(s.router)
	guests.Routes{Answers: s.answers, View: view, Metrics: s.metrics}.Add(s.router)
	images.Add(s.router, opt.Images)
	tenants.Routes{Keys: opt.Keys, Secrets: opt.SecretStore, Volumes: opt.Volumes, Networks: opt.Networks,
		Weights: opt.Weights}.Add(s.router)
	daemon.Routes{Answers: s.answers, Askers: s.askers, View: view, Version: opt.Version, Metrics: s.metrics,
		Streams: s.streams, Host: host, KVM: opt.KVM, Drain: opt.Drain, Node: opt.Node, AuditFile: opt.AuditFile,
		Events: opt.Events, Pace: s.limits.events}.Add(s.router)
}

// OpenAPI returns the document served at /openapi.json.
func (s *Server) OpenAPI() ([]byte, error) { return s.router.Document().MarshalJSON() }
