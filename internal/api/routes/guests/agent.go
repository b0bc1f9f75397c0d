package guests

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/internal/api/guestproxy"
	"github.com/forkd/forkd/internal/api/intake"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// agentRoutes pass requests on to agents.
type agentRoutes struct {
	sandboxes routing.Part[roles.Sandboxes]
	proxy     *guestproxy.Agent
}

func (p *agentRoutes) add(rt *routing.Router) {
	var ops []huma.Operation
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		ops = append(ops, huma.Operation{
			OperationID: "agent-" + map[string]string{http.MethodGet: "get", http.MethodPost: "post"}[method],
			Method:      method, Path: "/v1/sandboxes/{id}/agent/{path}", Tags: []string{"guests"},
			Summary:   "Pass a request through to the agent in the guest, any method, streaming",
			Responses: map[string]*huma.Response{"200": {Description: "Whatever the agent answers"}},
		})
	}
	const as = "POST /v1/sandboxes/{id}/agent/{path}" // other methods need the same scope
	rt.PassRoute(ops, requestinfo.AgentRoute, as, func(w http.ResponseWriter, r *http.Request) error {
		// A clear error is better than a failed dial.
		info, err := p.sandboxes(r.Context()).Get(r.PathValue("id"))
		if err != nil {
			return err
		}
		// The agent may answer before it has read the whole request. Without this call, the server
		// would then close the request's body while the proxy still reads it.
		w = earlyanswer.Allow(w, r)
		r.Body = intake.Release(r.Body)
		p.proxy.Serve(w, r, info)
		return nil
	})
}
