package routing

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/workspace"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Router finds the operation for a request, and lists all operations in the OpenAPI document.
// Routes must not be added after it serves.
type Router struct {
	respond.Answers
	mux      *http.ServeMux
	api      huma.API
	params   []pathParam
	bodyTime time.Duration // for a JSON body to arrive
	objects  Objects
	needs    map[string]Need
	added    []string // "METHOD /path" of every route, for the conformance test
}

// Objects finds the objects that paths name, as the sender of a request may see them.
type Objects struct {
	View       View
	Workspaces *workspace.Book
	// Key returns an error if the key does not exist for the caller.
	Key func(who principal.Principal, id string) error
}

// New returns a router without routes. bodyTime is the time for a JSON body to arrive.
func New(a respond.Answers, v api.VersionInfo, bodyTime time.Duration, o Objects) *Router {
	rt := &Router{Answers: a, mux: http.NewServeMux(), params: pathParams(), bodyTime: bodyTime, objects: o,
		needs: Needs()}
	rt.api = humago.New(rt.mux, openAPIConfig(v))
	rt.api.UseMiddleware(rt.checkPath)
	return rt
}

// Mux returns the mux, which knows the pattern of each request.
func (rt *Router) Mux() *http.ServeMux { return rt.mux }

// Document returns the document that lists the operations.
func (rt *Router) Document() *huma.OpenAPI { return rt.api.OpenAPI() }

// Routes lists "METHOD /path" of every route.
func (rt *Router) Routes() []string { return rt.added }

func openAPIConfig(v api.VersionInfo) huma.Config {
	cfg := huma.DefaultConfig("forkd", v.Version)
	cfg.Info.Description =
		"Fork warm microVMs. Fields of the original forkd are the same; the others are additions."
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[apierror.Error](), reflect.TypeFor[api.Error]())
	cfg.Components = &huma.Components{
		Schemas: schemas,
		SecuritySchemes: map[string]*huma.SecurityScheme{
			"bearer": {Type: "http", Scheme: "bearer",
				Description: "The daemon's token, or a key; on its Unix socket root and its own user need none"},
			"key": {Type: "apiKey", In: "header", Name: api.HeaderKey, Description: "Token or key, as sent by E2B's clients"},
		},
	}
	cfg.Security = []map[string][]string{{"bearer": {}}, {"key": {}}}
	// strictJSON refuses unknown fields, with an error that names the nearest known field.
	cfg.AllowAdditionalPropertiesByDefault = true
	cfg.Formats = map[string]huma.Format{"application/json": strictJSON(), "json": strictJSON()}
	// No pages that load scripts from other sites, no $schema fields in answers.
	cfg.DocsPath, cfg.SchemasPath = "", ""
	cfg.CreateHooks = nil
	cfg.Transformers = []huma.Transformer{withRequestID}
	return cfg
}

// withRequestID adds the request's ID to errors huma writes.
func withRequestID(ctx huma.Context, _ string, v any) (any, error) {
	if f, ok := v.(*apierror.Error); ok {
		f.RequestID = requestinfo.ID(ctx.Context())
	}
	return v, nil
}

// Route adds an operation with a JSON body.
func Route[I, O any](rt *Router, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.MaxBodyBytes, op.BodyReadTimeout = api.MaxBodyBytes, rt.bodyTime
	rt.added = append(rt.added, op.Method+" "+op.Path)
	rt.documentErrors(&op)
	huma.Register(rt.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := h(ctx, in)
		if err == nil {
			err = chargeAnswer(ctx, op.Method, out)
		}
		if err != nil {
			return nil, rt.Failed(ctx, err)
		}
		return out, nil
	})
}

// documentErrors lists an operation's error responses. By default huma would add 422, which
// validationFailure turns into 400.
func (rt *Router) documentErrors(op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	for _, status := range op.Errors {
		op.Responses[strconv.Itoa(status)] = rt.JSONResponse(http.StatusText(status), api.Error{})
	}
	op.Errors = nil
	op.Responses["default"] = rt.JSONResponse("Error", api.Error{})
}

// RawRoute adds an operation that reads or writes a format other than JSON. The buffers of a
// streamed answer are charged.
func (rt *Router) RawRoute(op huma.Operation, h func(http.ResponseWriter, *http.Request) error) {
	if op.Method == http.MethodGet && op.Responses["200"] != nil {
		write := h
		h = func(w http.ResponseWriter, r *http.Request) error {
			if err := reply.ChargeStream(r.Context()); err != nil {
				return err
			}
			return write(w, r)
		}
	}
	rt.describe(op)
	rt.added = append(rt.added, op.Method+" "+op.Path)
	rt.mux.HandleFunc(op.Method+" "+op.Path, rt.rawHandler(op.Method+" "+op.Path, h))
}

// PassRoute adds one handler for operations that the mux finds by a pattern of its own. Their requirements are those of
// the route as.
func (rt *Router) PassRoute(ops []huma.Operation, pattern, as string,
	h func(http.ResponseWriter, *http.Request) error) {
	for _, op := range ops {
		rt.describe(op)
		rt.added = append(rt.added, op.Method+" "+op.Path)
	}
	rt.mux.HandleFunc(pattern, rt.rawHandler(as, h))
}

// rawHandler checks the requirements of a route, which needs lists by this name.
func (rt *Router) rawHandler(of string, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := checkParams(rt.params, r.PathValue)
		if err == nil {
			named(r)
			if err = rt.permit(r, of); err == nil {
				err = h(w, r)
			}
		}
		if err != nil {
			respond.Error(w, rt.Failed(r.Context(), err))
		}
	}
}

// describe lists an operation huma does not handle.
func (rt *Router) describe(op huma.Operation) {
	for _, segment := range strings.Split(op.Path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: "string"},
			})
		}
	}
	rt.documentErrors(&op)
	rt.api.OpenAPI().AddOperation(&op)
}

// checkPath runs before huma reads any part of a request.
func (rt *Router) checkPath(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if err := checkParams(rt.params, ctx.Param); err != nil {
		respond.Error(w, rt.Failed(r.Context(), err))
		return
	}
	named(r)
	if err := rt.permit(r, ctx.Operation().Method+" "+ctx.Operation().Path); err != nil {
		respond.Error(w, rt.Failed(r.Context(), err))
		return
	}
	next(ctx)
}

// SchemaOf returns the schema of a type in the document.
func (rt *Router) SchemaOf(v any) *huma.Schema {
	return rt.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// JSONResponse documents an answer that the handler writes itself.
func (rt *Router) JSONResponse(description string, v any) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: rt.SchemaOf(v)}},
	}
}

// Dispatch replaces the mux's own answers.
func (rt *Router) Dispatch(w http.ResponseWriter, r *http.Request) {
	if !cleanPath(r.URL.Path) {
		respond.Error(w, rt.Failed(r.Context(), unclean(r)))
		return
	}
	h, pattern := rt.mux.Handler(r)
	if pattern == "" {
		rt.notRouted(w, r, h)
		return
	}
	rt.mux.ServeHTTP(w, r)
}

// notRouted answers requests without a route, in the API's error format.
func (rt *Router) notRouted(w http.ResponseWriter, r *http.Request, h http.Handler) {
	probe := &headerProbe{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		respond.Error(w, apierror.New(api.CodeMethod, "",
			"%s is not a method of %s: it takes %s", ellipsis.Clip(r.Method, 20), ellipsis.Clip(r.URL.Path, 200), allow))
		return
	}
	respond.Error(w, apierror.New(api.CodeNotFound, "", "no such path: %s; GET /openapi.json lists the routes",
		ellipsis.Clip(r.URL.Path, 200)))
}

// headerProbe stores a handler's status and headers, and discards its body.
type headerProbe struct {
	header http.Header
	status int
}

func (p *headerProbe) Header() http.Header         { return p.header }
func (p *headerProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *headerProbe) WriteHeader(status int)      { p.status = status }

// chargeAnswer charges a handler's answer. A stream has charged its own parts.
func chargeAnswer(ctx context.Context, method string, out any) error {
	if _, ok := out.(*huma.StreamResponse); ok {
		return nil
	}
	return reply.Charge(ctx, method, out)
}
