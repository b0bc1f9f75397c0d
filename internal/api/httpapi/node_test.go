package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func nodeBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, func(o *httpapi.Options) {
		o.Node = daemon.Node{Name: "node-a", UID: "u-1", Key: sandbox.NodeKeyOf("u-1"), Kernel: "6.1",
			CPU: api.NodeCPU{Vendor: "GenuineIntel", Features: []string{"avx2"}}, ChildMemory: 8 << 20}
	})
}

func TestTheFactsOfANode(t *testing.T) {
	b := nodeBench(t)
	b.fork("2")
	if w := b.do("PUT", "/v1/snapshots/py/pool", `{"size":3}`); w.Code != 204 {
		t.Fatal(w.Body)
	}
	n := into[api.Node](t, b.do("GET", "/v1/node", ""), 200)
	if n.Name != "node-a" || n.UID != "u-1" || n.Key != string(sandbox.NodeKeyOf("u-1")) || n.Kernel != "6.1" ||
		n.Version != "1.2.3" || len(n.CPU.Features) != 1 || n.ChildBytes != 8<<20 || n.Truncated || n.Draining {
		t.Errorf("identity: %+v", n)
	}
	if n.Memory.Total != 16<<30 || n.Memory.Free == 0 || n.Disk.Total == 0 || n.Sandboxes.Running != 2 {
		t.Errorf("capacity: %+v", n)
	}
	if len(n.Pools) != 1 || n.Pools[0] != (api.NodePool{Tag: "py", Ready: n.Pools[0].Ready, Want: 3}) {
		t.Errorf("pools: %+v", n.Pools)
	}
	if len(n.Snapshots) != 1 || n.Snapshots[0].Tag != "py" || n.Snapshots[0].Running != 2 || n.Snapshots[0].ContentHash == "" {
		t.Errorf("snapshots: %+v", n.Snapshots)
	}
}

func TestADrainShowsAtOnce(t *testing.T) {
	b := nodeBench(t)
	for _, c := range []struct {
		method string
		want   bool
	}{{"POST", true}, {"DELETE", false}} {
		into[api.Node](t, b.do("GET", "/v1/node", ""), 200) // the other facts are cached now
		b.do(c.method, "/v1/drain", "{}")
		if n := into[api.Node](t, b.do("GET", "/v1/node", ""), 200); n.Draining != c.want {
			t.Errorf("after %s: draining %v", c.method, n.Draining)
		}
	}
}

func TestTheListOfSnapshotsIsBounded(t *testing.T) {
	b := nodeBench(t)
	for i := range 1100 {
		_, err := b.engine.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: fmt.Sprint("s", i), Image: "python-numpy"},
			func(sandbox.Step) {})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := b.do("GET", "/v1/node", "")
	size := w.Body.Len()
	if n := into[api.Node](t, w, 200); len(n.Snapshots) != 1024 || !n.Truncated || size > 512<<10 {
		t.Errorf("%d snapshots, truncated %v, %d bytes", len(n.Snapshots), n.Truncated, size)
	}
}

// A fork whose answer was lost is asked for again with the same key.
func TestARepeatedForkMakesNoSecondSandbox(t *testing.T) {
	b := newBench(t)
	ask := func(key, accept, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v1/sandboxes", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		return w
	}
	const body = `{"snapshot_tag":"py","n":2}`
	first := into[[]api.SandboxInfo](t, ask("k-1", "", body), 201)
	again := into[[]api.SandboxInfo](t, ask("k-1", "", body), 201)
	if len(again) != 2 || again[0].ID != first[0].ID || again[1].ID != first[1].ID || again[1].Index != 2 {
		t.Errorf("the second answer has other sandboxes: %+v", again)
	}
	lines := strings.Split(strings.TrimSpace(ask("k-1", "application/x-ndjson", body).Body.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], first[0].ID) || !strings.Contains(lines[2], `"fork"`) {
		t.Errorf("as a stream: %q", lines)
	}
	if n := len(b.engine.List()); n != 2 {
		t.Fatalf("%d sandboxes run, want 2", n)
	}
	wantError(t, ask("k-1", "", `{"snapshot_tag":"py","n":3}`), api.CodeInvalid)
	wantError(t, ask("K 1", "", body), api.CodeInvalid)
	b.do("DELETE", "/v1/sandboxes/"+first[0].ID, "")
	ended := into[[]api.SandboxInfo](t, ask("k-1", "", body), 201)
	if ended[0].Code != api.CodeGuestGone || ended[0].ID != "" || ended[1].ID != first[1].ID {
		t.Errorf("after the end of one: %+v", ended)
	}
	wantError(t, ask("k-2", "", `{"snapshot_tag":"none"}`), api.CodeNotFound)
	b.do("POST", "/v1/snapshots", `{"tag":"none","image":"python-numpy"}`)
	into[[]api.SandboxInfo](t, ask("k-2", "", `{"snapshot_tag":"none"}`), 201) // a failed request may run again
	if other := into[[]api.SandboxInfo](t, ask("k-3", "", body), 201); other[0].ID == first[0].ID {
		t.Error("another key got the same sandboxes")
	}
}
