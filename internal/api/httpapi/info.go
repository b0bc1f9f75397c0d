package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/metrics"
)

// body is an answer with one JSON value.
type body[T any] struct{ Body T }

// none is the input of an operation without parameters.
type none struct{}

// daemonRoutes serve information about the daemon itself.
type daemonRoutes struct {
	version api.VersionInfo
	metrics *metrics.Metrics
}

func (s *daemonRoutes) add(rt *router) {
	route(rt, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: []string{"daemon"},
		Summary: "Whether the daemon serves; needs no token", Security: []map[string][]string{},
	}, func(context.Context, *none) (*body[api.Health], error) {
		return &body[api.Health]{api.Health{OK: true}}, nil
	})
	route(rt, huma.Operation{
		OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: []string{"daemon"},
		Summary: "Version of the daemon and of its API",
	}, func(context.Context, *none) (*body[api.VersionInfo], error) {
		return &body[api.VersionInfo]{s.version}, nil
	})
	scrape := s.metrics.Handler()
	rt.rawRoute(huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{"daemon"},
		Summary:   "Metrics in the Prometheus text format",
		Responses: map[string]*huma.Response{"200": textResponse("Metrics", "text/plain")},
	}, func(w http.ResponseWriter, r *http.Request) error {
		scrape.ServeHTTP(w, r)
		return nil
	})
}

func textResponse(description, contentType string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: "string"}}},
	}
}
