package sandboxes

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/idempotency"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type forkInput struct {
	Key    string `header:"Idempotency-Key" doc:"A repeated request with the same key and body is answered with the sandboxes of the first" pattern:"^[a-z0-9-]{1,255}$"`
	Accept string `header:"Accept" doc:"application/x-ndjson streams the children as they become ready, a ForkLine per line"`
	Body   api.CreateSandboxesRequest
}

// forkRoutes make sandboxes.
type forkRoutes struct {
	respond.Answers
	engine  routing.Part[roles.Sandboxes]
	repeats idempotency.Cache[madeOnce]
}

func (f *forkRoutes) add(rt *routing.Router) {
	created := rt.JSONResponse("Created", []api.SandboxInfo{})
	created.Content[routing.NDJSON] = &huma.MediaType{Schema: rt.SchemaOf(api.ForkLine{})}
	created.Headers = map[string]*huma.Param{
		api.HeaderPoolReady: numberHeader("Shells that stood ready when the request arrived"),
		api.HeaderArmedWall: numberHeader("Microseconds to the last child restored at its gate"),
		api.HeaderReadyWall: numberHeader("Microseconds to the last child's confirmed identity"),
	}
	routing.Route(rt, huma.Operation{
		OperationID: "fork", Method: http.MethodPost, Path: "/v1/sandboxes", Tags: []string{"sandboxes"},
		Summary: "Fork n sandboxes from a snapshot",
		Description: "The response has one entry per requested child. A failed child is an entry with status failed, " +
			"error and code. The response is an error only if all children failed.",
		Responses: map[string]*huma.Response{"201": created}, Errors: []int{400, 401, 404, 409, 501, 503, 507},
	}, f.fork)
}

func numberHeader(doc string) *huma.Param {
	return &huma.Param{Description: doc, Schema: &huma.Schema{Type: "integer"}}
}

// portsOf returns whether ports are private. An explicit request wins. Otherwise they are private
// for a tenant, because any other tenant could reach its sandboxes. For the operator, nil leaves it
// to the snapshot.
func portsOf(ctx context.Context, asked *bool) *bool {
	if asked == nil && !principal.From(ctx).Operator() {
		private := true
		return &private
	}
	return asked
}

// fork answers with a list at the end, or with a line for each child.
func (f *forkRoutes) fork(ctx context.Context, in *forkInput) (*huma.StreamResponse, error) {
	req := sandbox.ForkRequest{Tag: in.Body.SnapshotTag, N: 1, Env: in.Body.Env, GuestFork: in.Body.GuestFork,
		Identity:     in.Body.Identity,
		Secrets:      wire.SecretRefs(in.Body.Secrets),
		PrivatePorts: portsOf(ctx, in.Body.PrivatePorts), Limits: wire.DomainLimits(in.Body),
		Life: wire.DomainLife(in.Body.SandboxLife), Labels: in.Body.Labels, Volumes: wire.DomainVolumes(in.Body.Volumes),
		Join: wire.DomainJoin(in.Body.NetJoin)}
	if in.Body.N != nil {
		req.N = *in.Body.N
	}
	requestinfo.From(ctx).Snapshot, requestinfo.From(ctx).Count = req.Tag, req.N
	var err error
	if req.Network, req.Tap, err = wire.NetworkOf(in.Body.Net, in.Body.Network); err != nil {
		return nil, err
	}
	if req.Services, err = wire.ServiceSpecs(in.Body.Services); err != nil {
		return nil, err
	}
	run, err := f.once(ctx, in)
	if err != nil {
		return nil, err
	}
	if respond.Accepts(in.Accept, routing.NDJSON) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { f.stream(hc, req, run) }}, nil
	}
	res, err := run(ctx, req)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set(api.HeaderPoolReady, strconv.Itoa(res.PoolReady))
		w.Header().Set(api.HeaderArmedWall, strconv.FormatInt(res.ArmedWall.Microseconds(), 10))
		w.Header().Set(api.HeaderReadyWall, strconv.FormatInt(res.ReadyWall.Microseconds(), 10))
		respond.JSON(w, http.StatusCreated, wireChildren(ctx, res, req))
	}}, nil
}

// run forks. It returns an error if no child was made.
func (f *forkRoutes) run(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	res, err := f.engine(ctx).Fork(ctx, req)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	return res, allFailed(res)
}

// stream sends a line for each child as soon as it is ready or has failed. If the fork is refused,
// the answer has a plain error status.
func (f *forkRoutes) stream(hc huma.Context, req sandbox.ForkRequest, run forker) {
	r, w := humago.Unwrap(hc)
	out := routing.NewLines(w, http.StatusCreated)
	// The buffer has space for all children, so that a slow reader does not delay them.
	children := make(chan sandbox.Child, min(max(req.N, 0), sandbox.MaxFork))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for c := range children {
			child := wire.Child(r.Context(), c, req)
			out.Send(api.ForkLine{Child: &child})
		}
	}()
	req.Each = func(c sandbox.Child) { children <- c }
	res, err := run(r.Context(), req)
	close(children)
	<-sent
	switch {
	case err == nil:
		out.Send(api.ForkLine{Fork: &api.ForkTotals{
			PoolReady:   res.PoolReady,
			ArmedWallMS: wire.Milliseconds(res.ArmedWall), ReadyWallMS: wire.Milliseconds(res.ReadyWall),
		}})
	case out.Started():
		out.Send(api.ForkLine{Error: f.Failed(r.Context(), err).Wire()})
	default:
		respond.Error(w, f.Failed(r.Context(), err))
	}
}

// wireChildren returns the entries of a fork's children, by index.
func wireChildren(ctx context.Context, res sandbox.ForkResult, req sandbox.ForkRequest) []api.SandboxInfo {
	out := make([]api.SandboxInfo, 0, len(res.Children))
	for _, child := range res.Children {
		out = append(out, wire.Child(ctx, child, req))
	}
	slices.SortFunc(out, func(a, b api.SandboxInfo) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// allFailed returns the first child's error if no child was made, and nil otherwise.
func allFailed(res sandbox.ForkResult) error {
	var first error
	for _, child := range res.Children {
		if child.Err == nil {
			return nil
		}
		if first == nil {
			first = child.Err
		}
	}
	return first
}
