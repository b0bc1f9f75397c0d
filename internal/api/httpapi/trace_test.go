package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

func TestExecPassesTheTraceOn(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const parent = "00-" + trace + "-00f067aa0ba902b7-01"
	n := &requestinfo.Info{ID: "r1"}
	for _, c := range []struct{ name, parent, state, env, want string }{
		{"with both headers", parent, "a=1", "", parent + "|a=1"},
		{"set by the client", parent, "a=1", "mine", "mine|"},
		{"invalid", parent + "x", "a=1", "", "|"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got map[string]string
			s := &Server{}
			h := s.setRequestID(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				env := map[string]string{"OTHER": "x"}
				if c.env != "" {
					env["TRACEPARENT"] = c.env
				}
				got = traced(r.Context(), env)
			}))
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("traceparent", c.parent)
			r.Header.Set("tracestate", c.state)
			n.Trace = tracecontext.FromHeader(r.Header)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(requestinfo.With(r.Context(), n)))
			if s := got["TRACEPARENT"] + "|" + got["TRACESTATE"]; s != c.want || got["OTHER"] != "x" {
				t.Errorf("environment %q, want %q", got, c.want)
			}
			valid := c.parent == parent
			if answered := w.Header().Get(api.HeaderTraceID) == trace; answered != valid {
				t.Errorf("answer's headers: %v", w.Header())
			}
			if logged := strings.Contains(n.LogAttr().String(), trace); logged != valid {
				t.Errorf("log has %v", n.LogAttr())
			}
		})
	}
}
