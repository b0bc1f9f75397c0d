package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// holder starts a cluster whose first node alone has the snapshot py, and room for some sandboxes.
func holder(t *testing.T, nodes, room int) *fakecluster.Cluster {
	t.Helper()
	c := fakecluster.Start(t, nodes, "", nil)
	first := c.Nodes[0].Daemon.Engine
	first.Limit = room
	_, err := first.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "py", Image: "python-numpy"}, func(sandbox.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		facts, _ := c.Set.ByName("node-a").Facts()
		return len(facts.Snapshots) > 0
	}
	for until := time.Now().Add(20 * time.Second); !known(); {
		if time.Now().After(until) {
			t.Fatal("the gateway does not know the snapshot")
		}
		time.Sleep(10 * time.Millisecond) // elapses: the polls of the set have their own pace
	}
	return c
}

func TestAForkOverflowsToNodesWithoutTheSnapshot(t *testing.T) {
	for name, accept := range map[string]string{"list": "application/json", "lines": "application/x-ndjson"} {
		t.Run(name, func(t *testing.T) {
			c := holder(t, 3, 4)
			a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":20}`, "Accept", accept)
			var all []api.SandboxInfo
			if name == "list" {
				all = into[[]api.SandboxInfo](t, a, 201)
			} else {
				all = childrenOf(t, a)
			}
			indexes := map[int]bool{}
			for _, s := range all {
				indexes[s.Index] = true
				if s.Status == api.SandboxFailed {
					t.Errorf("%+v", s)
				}
			}
			n := c.Sandboxes()
			if len(all) != 20 || len(indexes) != 20 || !indexes[1] || !indexes[20] || n[0] != 4 || sum(n) != 20 {
				t.Errorf("%d children, %d indexes, the nodes have %v", len(all), len(indexes), n)
			}
		})
	}
}

func TestOneForkOverflows(t *testing.T) {
	c := holder(t, 2, 1)
	into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	second := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	if sandbox.NodeKeyIn(second[0].ID) != c.Nodes[1].Key {
		t.Errorf("it is %s, the nodes have %v", second[0].ID, c.Sandboxes())
	}
	into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	if n := c.Sandboxes(); n[0] != 1 || n[1] != 2 {
		t.Errorf("the nodes have %v", n)
	}
}

// E2B's clients and those of workspaces get sandboxes on nodes without the snapshot, too.
func TestCreatesOverflow(t *testing.T) {
	key := []string{"X-API-KEY", fakecluster.Token, "Authorization", ""}
	for name, way := range map[string]struct {
		path, body string
		headers    []string
	}{
		"E2B":                      {"/v2/sandboxes", `{"templateID":"py"}`, key},
		"E2B, the older route":     {"/sandboxes", `{"templateID":"py"}`, key},
		"E2B, with namespace, tag": {"/sandboxes", `{"templateID":"forkd/py:default"}`, key},
		"workspace":                {"/v1/workspaces", `{"name":"w%d","snapshot_tag":"py"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := holder(t, 2, 1)
			for i := range 3 {
				body := way.body
				if strings.Contains(body, "%d") {
					body = fmt.Sprintf(body, i)
				}
				if a := do(t, c, "POST", way.path, body, way.headers...); a.StatusCode != 201 {
					t.Fatalf("%d: %d %s", i, a.StatusCode, a.body)
				}
			}
			if n := c.Sandboxes(); n[0] != 1 || n[1] != 2 {
				t.Errorf("the nodes have %v", n)
			}
		})
	}
}

// A create that cannot be repeated is sent once, after the copy as well. Without a right, there is no copy.
func TestCreatesThatDoNotOverflow(t *testing.T) {
	key := []string{"X-API-KEY", fakecluster.Token, "Authorization", ""}
	c := holder(t, 2, 1)
	into[map[string]any](t, do(t, c, "POST", "/sandboxes", `{"templateID":"py"}`, key...), 201)
	if a := do(t, c, "POST", "/sandboxes", `{"templateID":"py"}`, "X-API-KEY", "wrong"); a.StatusCode != 401 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if all, err := c.Nodes[1].Daemon.Engine.ListSnapshots(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the other node has %+v, %v", all, err)
	}
	var asked, copied atomic.Int64
	c.Nodes[1].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/copy") {
			copied.Add(1)
		}
		if r.URL.Path == "/sandboxes" {
			asked.Add(1)
			pass.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the answer is lost
		}
		pass.ServeHTTP(w, r)
	})
	a := do(t, c, "POST", "/sandboxes", `{"templateID":"py"}`, key...)
	if a.StatusCode != api.CodeTimeout.Status() || !strings.Contains(a.body, "it may have done") || asked.Load() != 1 ||
		copied.Load() != 1 || sum(c.Sandboxes()) != 2 {
		t.Errorf("%d %s, %d requests, %d copies, the nodes have %v", a.StatusCode, a.body, asked.Load(), copied.Load(),
			c.Sandboxes())
	}
}

// If copies fail, the client gets the refusal of the node with the snapshot.
func TestCopiesThatFail(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"refused": func(w http.ResponseWriter) {
			http.Error(w, `{"code":"unsupported","error":"no peers"}`, http.StatusNotImplemented)
		},
		"full":     func(w http.ResponseWriter) { http.Error(w, `{"code":"no_space"}`, http.StatusInsufficientStorage) },
		"aborts":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"pretends": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
	} {
		t.Run(name, func(t *testing.T) {
			c := holder(t, 4, 2)
			var copies atomic.Int64
			for _, n := range c.Nodes[1:] {
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if strings.HasSuffix(r.URL.Path, "/copy") {
						copies.Add(1)
						answer(w)
						return
					}
					pass.ServeHTTP(w, r)
				})
			}
			a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":5}`)
			ok, failed := 0, 0
			for _, s := range into[[]api.SandboxInfo](t, a, 201) {
				if s.Status == api.SandboxFailed {
					failed++
					if s.Code != api.CodeNoMemory {
						t.Errorf("%+v", s)
					}
				} else {
					ok++
				}
			}
			if ok != 2 || failed != 3 || sum(c.Sandboxes()) != 2 {
				t.Errorf("%d made, %d failed, the nodes have %v", ok, failed, c.Sandboxes())
			}
			wantError(t, do(t, c, "POST", "/v1/sandboxes", forkOne), api.CodeNoMemory, "")
			if n := copies.Load(); n == 0 || n > 4 {
				t.Errorf("%d copies for two requests", n)
			}
		})
	}
}

// A client gets no snapshot to a node that it may not fork.
func TestOverflowHasTheRightsOfTheClient(t *testing.T) {
	c := holder(t, 2, 1)
	into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	a := do(t, c, "POST", "/v1/sandboxes", forkOne, "Authorization", "Bearer "+fmt.Sprintf("%032d", 7))
	if a.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if all, err := c.Nodes[1].Daemon.Engine.ListSnapshots(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the other node has %+v, %v", all, err)
	}
}
