package sandboxes

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

type setNetworkInput struct {
	routing.IDPath
	Body api.SetNetworkRequest
}

// networkRoutes show and change the network policies of running sandboxes, and show their network
// use.
type networkRoutes struct{ engine routing.Part[roles.Networks] }

func (s *networkRoutes) add(rt *routing.Router) {
	tags := []string{"network"}
	path := "/v1/sandboxes/{id}/network"
	routing.Route(rt, huma.Operation{
		OperationID: "get-network", Method: http.MethodGet, Path: path, Tags: tags,
		Summary: "A sandbox's network policy", Errors: []int{400, 401, 404},
	}, s.get)
	routing.Route(rt, huma.Operation{
		OperationID: "set-network", Method: http.MethodPut, Path: path, Tags: tags,
		Summary:     "Change a running sandbox's network policy",
		Description: "Connections that the new policy denies are reset before the response.",
		Errors:      []int{400, 401, 404, 409, 502, 503},
	}, s.set)
	routing.Route(rt, huma.Operation{
		OperationID: "network-flows", Method: http.MethodGet, Path: path + "/flows", Tags: tags,
		Summary: "A sandbox's open connections", Errors: []int{400, 401, 404, 409, 502, 503},
	}, s.flows)
	rt.RawRoute(huma.Operation{
		OperationID: "network-log", Method: http.MethodGet, Path: path + "/log", Tags: tags,
		Summary: "A sandbox's last refused connections",
		Parameters: []*huma.Param{{Name: "follow", In: "query",
			Description: "Go on with all connections, as they end or are refused", Schema: &huma.Schema{Type: "boolean"}}},
		Responses: map[string]*huma.Response{"200": {Description: "A JSON object per line",
			Content: map[string]*huma.MediaType{routing.NDJSON: {Schema: &huma.Schema{Type: "object"}}}}},
		Errors: []int{400, 401, 404, 409, 502, 503},
	}, s.log)
}

func (s *networkRoutes) get(ctx context.Context, in *routing.IDPath) (*routing.Body[api.SandboxNetwork], error) {
	n, err := s.engine(ctx).Network(in.ID)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Network(n)), nil
}

func (s *networkRoutes) set(ctx context.Context, in *setNetworkInput) (*routing.Body[api.SandboxNetwork], error) {
	spec, err := wire.PolicyOf(in.Body.Net, in.Body.Network)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, apierror.New(api.CodeInvalid, "", "network: want a policy, or net by its name")
	}
	n, err := s.engine(ctx).SetNetwork(ctx, in.ID, sandbox.NetworkRequest{Policy: *spec})
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Network(n)), nil
}

func (s *networkRoutes) flows(ctx context.Context, in *routing.IDPath) (*routing.Body[[]api.NetworkFlow], error) {
	flows, err := s.engine(ctx).Flows(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := make([]api.NetworkFlow, 0, len(flows))
	for _, f := range flows {
		out = append(out, api.NetworkFlow(f))
	}
	return routing.Answer(out), nil
}

// log streams lines as forkd-net writes them. It sends the status with the first line, or
// immediately if the first line may take a while.
func (s *networkRoutes) log(w http.ResponseWriter, r *http.Request) error {
	follow := false
	if v := r.URL.Query().Get("follow"); v != "" {
		var err error
		if follow, err = strconv.ParseBool(v); err != nil {
			return apierror.New(api.CodeInvalid, "", "follow %q: want true or false", ellipsis.Clip(v, 40))
		}
	}
	id := r.PathValue("id")
	if _, err := s.engine(r.Context()).Network(id); err != nil {
		return err
	}
	out := http.NewResponseController(w)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", routing.NDJSON)
			w.WriteHeader(http.StatusOK)
		}
	}
	if follow {
		begin()
		_ = out.Flush() // the client sees that it is connected
	}
	err := s.engine(r.Context()).NetworkLog(r.Context(), id, follow, func(line []byte) error {
		begin()
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return out.Flush()
	})
	switch {
	case err == nil:
		begin()
		return nil
	case begun:
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	}
	return err
}
