package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestExecRouteHasTheTrace(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	b := newBench(t)
	id := b.fork(`1`)[0].ID
	r := httptest.NewRequest("POST", "/v1/sandboxes/"+id+"/exec", strings.NewReader(`{"args":["env"]}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("traceparent", parent)
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	got := into[api.ExecResponse](t, w, 200)
	if !strings.Contains(got.Stdout, "TRACEPARENT="+parent+"\n") {
		t.Errorf("the program has no trace: %s", w.Body)
	}
	if got := w.Header().Get(api.HeaderTraceID); got != parent[3:35] {
		t.Errorf("answer's trace is %q", got)
	}
}
