package guest_test

import (
	"net/http"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

func TestEvalPassesTheTraceToTheAgent(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	traced := tracecontext.FromHeader(http.Header{"Traceparent": {parent}, "Tracestate": {"a=b"}})
	for _, c := range []struct {
		trace tracecontext.Context
		want  string
	}{{traced, parent + "|a=b"}, {tracecontext.Context{}, "|"}} {
		r, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "trace", Trace: c.trace})
		if err != nil || r.Result != c.want {
			t.Errorf("the agent has the trace %q, %v, want %q", r.Result, err, c.want)
		}
	}
}
