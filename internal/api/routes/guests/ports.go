package guests

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/guestproxy"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// portRoutes connect clients with servers in a guest, as byte streams.
type portRoutes struct {
	guests routing.Part[sandbox.Guests]
}

func (p *portRoutes) add(rt *routing.Router) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		rt.RawRoute(huma.Operation{
			OperationID: "connect-port-" + strings.ToLower(method), Method: method,
			Path: "/v1/sandboxes/{id}/ports/{port}/connect", Tags: []string{"guests"},
			Summary: "Connect to a TCP port in the guest",
			Description: "With the headers Connection: Upgrade and Upgrade: " + api.UpgradeTCP + ". After the answer " +
				"the connection carries the bytes of the guest's server in both directions, with half-close.",
			Parameters: []*huma.Param{{
				Name: "Upgrade", In: "header", Required: true, Schema: &huma.Schema{Type: "string"},
			}},
			Responses: map[string]*huma.Response{"101": {Description: "The server's bytes follow"}},
			Errors:    []int{400, 401, 404, 502, 504, 507},
		}, p.connect)
	}
}

func (p *portRoutes) connect(w http.ResponseWriter, r *http.Request) error {
	return guestproxy.ConnectPort(w, r, p.guests(r.Context()))
}
