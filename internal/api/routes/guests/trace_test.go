package guests

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

func TestExecPassesTheTraceOn(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ name, parent, state, env, want string }{
		{"with both headers", parent, "a=1", "", parent + "|a=1"},
		{"set by the client", parent, "a=1", "mine", "mine|"},
		{"invalid", parent + "x", "a=1", "", "|"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("traceparent", c.parent)
			r.Header.Set("tracestate", c.state)
			n := &requestinfo.Info{ID: "r1", Trace: tracecontext.FromHeader(r.Header)}
			env := map[string]string{"OTHER": "x"}
			if c.env != "" {
				env["TRACEPARENT"] = c.env
			}
			got := traced(requestinfo.With(r.Context(), n), env)
			if s := got["TRACEPARENT"] + "|" + got["TRACESTATE"]; s != c.want || got["OTHER"] != "x" {
				t.Errorf("environment %q, want %q", got, c.want)
			}
		})
	}
}
