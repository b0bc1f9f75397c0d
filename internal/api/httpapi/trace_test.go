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

func TestTheAnswerAndTheLogHaveTheTrace(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const parent = "00-" + trace + "-00f067aa0ba902b7-01"
	n := &requestinfo.Info{ID: "r1"}
	for _, c := range []struct{ name, parent string }{{"valid", parent}, {"invalid", parent + "x"}} {
		t.Run(c.name, func(t *testing.T) {
			s := &Server{}
			h := s.setRequestID(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("traceparent", c.parent)
			n.Trace = tracecontext.FromHeader(r.Header)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(requestinfo.With(r.Context(), n)))
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
