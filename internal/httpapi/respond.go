package httpapi

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/ellipsis"
)

// failed maps a handler's error and leaves a trace of those that are ours.
func (s *Server) failed(ctx context.Context, err error) *failure {
	f := failureOf(err)
	if f.status >= http.StatusInternalServerError && ctx.Err() == nil {
		s.log.Error("request failed", "code", f.Code, "error", f.Message)
	}
	noteError(ctx, f)
	return f
}

func (s *Server) writeFailure(w http.ResponseWriter, f *failure) {
	maps.Copy(w.Header(), f.GetHeaders())
	writeJSON(w, f.status, f)
}

// writeJSON writes a whole answer. A client that went away is told nothing.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

func (s *Server) schemaOf(v any) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// jsonResponse documents an answer that is written by hand.
func (s *Server) jsonResponse(description string, v any) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: s.schemaOf(v)}},
	}
}

func textResponse(description, contentType string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: "string"}}},
	}
}

// accepts reports whether the client asked for a content type by name.
func accepts(header, contentType string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), contentType) {
			return true
		}
	}
	return false
}

// notRouted answers requests that match no route, in our error shape.
func (s *Server) notRouted(w http.ResponseWriter, r *http.Request, h http.Handler) {
	probe := &headerProbe{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.writeFailure(w, fail(api.CodeMethod, "",
			"%s is not a method of %s: it takes %s", ellipsis.Clip(r.Method, 20), ellipsis.Clip(r.URL.Path, 200), allow))
		return
	}
	s.writeFailure(w, fail(api.CodeNotFound, "", "no such path: %s; GET /openapi.json lists the routes", ellipsis.Clip(r.URL.Path, 200)))
}

// headerProbe keeps what a handler says about itself and drops its body.
type headerProbe struct {
	header http.Header
	status int
}

func (p *headerProbe) Header() http.Header         { return p.header }
func (p *headerProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *headerProbe) WriteHeader(status int)      { p.status = status }

// serverLog passes on what net/http has to say about connections, which is
// mostly about clients.
func (s *Server) serverLog() *log.Logger {
	return slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
}
