package daemon

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/routing"
)

// daemonRoutes serve information about the daemon itself.
type daemonRoutes struct {
	version api.VersionInfo
	metrics *metrics.Metrics
}

func (s *daemonRoutes) add(rt *routing.Router) {
	routing.Route(rt, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: []string{"daemon"},
		Summary: "Whether the daemon serves; needs no token", Security: []map[string][]string{},
	}, func(context.Context, *routing.None) (*routing.Body[api.Health], error) {
		return routing.Answer(api.Health{OK: true}), nil
	})
	routing.Route(rt, huma.Operation{
		OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: []string{"daemon"},
		Summary: "Version of the daemon and of its API",
	}, func(context.Context, *routing.None) (*routing.Body[api.VersionInfo], error) {
		return routing.Answer(s.version), nil
	})
	scrape := s.metrics.Handler()
	rt.RawRoute(huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{"daemon"},
		Summary:   "Metrics in the Prometheus text format",
		Responses: map[string]*huma.Response{"200": routing.TextResponse("Metrics", "text/plain")},
	}, func(w http.ResponseWriter, r *http.Request) error {
		scrape.ServeHTTP(w, r)
		return nil
	})
}
