package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
)

// Options is what a Server is made of.
type Options struct {
	Engine  Engine
	Images  Images
	Version api.VersionInfo
	// Log gets the daemon's own messages; nil discards them.
	Log *slog.Logger
	// Audit gets one line per request; nil writes none.
	Audit *Audit
	// GuestFiles are where requests may name files by path; nil: nowhere.
	GuestFiles *GuestFiles
	// Timings are shown with the metrics; nil: there are none.
	Timings *Timings
}

// Server holds the routes. It is made once and serves any number of listeners.
type Server struct {
	engine  Engine
	images  Images
	version api.VersionInfo
	log     *slog.Logger
	audit   *Audit
	metrics *metrics
	mux     *http.ServeMux
	api     huma.API
	params  []pathParam
	limits  limits

	guestFiles *GuestFiles
	routes     []string // "METHOD /path" of every route, for the conformance test
}

// humaErrors makes huma's own errors ours. The library has only a package
// variable for it; set once, to the same value for any number of servers.
var humaErrors = sync.OnceFunc(func() { huma.NewError = validationFailure })

// New makes a server. It starts nothing.
func New(opt Options) *Server { return newServer(opt, defaultLimits()) }

func newServer(opt Options, most limits) *Server {
	humaErrors()
	s := &Server{
		engine: opt.Engine, images: opt.Images, version: opt.Version,
		log: opt.Log, audit: opt.Audit,
		mux: http.NewServeMux(), params: pathParams(), limits: most,
		guestFiles: opt.GuestFiles,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.version.API = api.Version
	s.metrics = newMetrics(opt.Engine, s.version, opt.Timings)
	s.api = humago.New(s.mux, openAPIConfig(s.version))
	s.api.UseMiddleware(s.checkPath)
	s.addMeta()
	s.addSnapshots()
	s.addDiffs()
	s.addStore()
	s.addSandboxes()
	s.addBranches()
	s.addRollbacks()
	s.addReceipts()
	s.addGuests()
	s.addAgentProxy()
	s.addPools()
	s.addImages()
	return s
}

// OpenAPI returns the document served at /openapi.json.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }

func openAPIConfig(v api.VersionInfo) huma.Config {
	cfg := huma.DefaultConfig("forkd", v.Version)
	cfg.Info.Description = "Fork warm microVMs. Fields that the original forkd has are the same here; the others are additions."
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[failure](), reflect.TypeFor[api.Error]())
	cfg.Components = &huma.Components{
		Schemas: schemas,
		SecuritySchemes: map[string]*huma.SecurityScheme{
			"bearer": {Type: "http", Scheme: "bearer", Description: "The daemon's token; on its Unix socket root and its own user need none"},
		},
	}
	cfg.Security = []map[string][]string{{"bearer": {}}}
	// The original's clients send fields that we do not know; so may newer ones.
	cfg.AllowAdditionalPropertiesByDefault = true
	// No pages that load scripts from elsewhere, no $schema fields in answers.
	cfg.DocsPath, cfg.SchemasPath = "", ""
	cfg.CreateHooks = nil
	return cfg
}

// route adds an operation whose body is JSON.
func route[I, O any](s *Server, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.MaxBodyBytes, op.BodyReadTimeout = api.MaxBodyBytes, s.limits.body
	s.routes = append(s.routes, op.Method+" "+op.Path)
	s.documentErrors(&op)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := h(ctx, in)
		if err != nil {
			return nil, s.failed(ctx, err)
		}
		return out, nil
	})
}

// documentErrors lists an operation's error responses. Left to itself, huma
// would add 422, which validationFailure turns into 400.
func (s *Server) documentErrors(op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	for _, status := range op.Errors {
		op.Responses[strconv.Itoa(status)] = s.jsonResponse(http.StatusText(status), api.Error{})
	}
	op.Errors = nil
	op.Responses["default"] = s.jsonResponse("Error", api.Error{})
}

// rawRoute adds an operation that reads or writes something other than JSON.
func (s *Server) rawRoute(op huma.Operation, h func(http.ResponseWriter, *http.Request) error) {
	s.describe(op)
	s.routes = append(s.routes, op.Method+" "+op.Path)
	s.mux.HandleFunc(op.Method+" "+op.Path, s.rawHandler(h))
}

func (s *Server) rawHandler(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := checkParams(s.params, r.PathValue)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.writeFailure(w, s.failed(r.Context(), err))
		}
	}
}

// describe lists an operation that huma does not handle.
func (s *Server) describe(op huma.Operation) {
	for _, segment := range strings.Split(op.Path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: "string"},
			})
		}
	}
	s.documentErrors(&op)
	s.api.OpenAPI().AddOperation(&op)
}

// checkPath runs before huma reads anything of a request.
func (s *Server) checkPath(ctx huma.Context, next func(huma.Context)) {
	if err := checkParams(s.params, ctx.Param); err != nil {
		r, w := humago.Unwrap(ctx)
		s.writeFailure(w, s.failed(r.Context(), err))
		return
	}
	next(ctx)
}
