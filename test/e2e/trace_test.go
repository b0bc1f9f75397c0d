package e2e

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/api"
)

// A daemon with its usual privileges exports the spans of real forks to a collector.
func TestTracesReachACollector(t *testing.T) {
	first := shared(t)
	var mu sync.Mutex
	spans := map[string]*otlp.Span{}
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(body)
		}
		b, err := io.ReadAll(body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &req) != nil {
			http.Error(w, "no traces", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					spans[s.Name] = s
				}
			}
		}
	}))
	t.Cleanup(to.Close)
	d := secondDaemon(t, "--traces", to.URL)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	n := 2
	id := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n}).OK()[0].ID
	d.branch(id, api.BranchRequest{Tag: "traced"})
	eventually(t, "spans of the branch", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return spans["branch.guest_pause"] != nil && spans["POST /v1/sandboxes/{id}/branch"] != nil
	})
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"POST /v1/sandboxes", "fork", "fork.arm", "fork.ready", "fork.child"} {
		s := spans[name]
		if s == nil || s.EndTimeUnixNano <= s.StartTimeUnixNano {
			t.Errorf("span %s: %v", name, s)
			continue
		}
		t.Logf("%s took %.1f ms", name, float64(s.EndTimeUnixNano-s.StartTimeUnixNano)/1e6)
	}
	request, pause := spans["POST /v1/sandboxes/{id}/branch"], spans["branch.guest_pause"]
	if pause.StartTimeUnixNano < request.StartTimeUnixNano || pause.EndTimeUnixNano > request.EndTimeUnixNano {
		t.Errorf("the pause %v is not within the request %v", pause, request)
	}
}
