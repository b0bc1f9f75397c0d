package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// pausedOn returns a paused sandbox of the first node, which then refuses to resume it.
func pausedOn(t *testing.T, c *fakecluster.Cluster) string {
	t.Helper()
	id := forkOn(t, c.Nodes[0])
	into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/pause", `{}`), 200)
	drainFirst(t, c)
	return id
}

func drainFirst(t *testing.T, c *fakecluster.Cluster) {
	t.Helper()
	if err := c.Nodes[0].Daemon.Engine.Drain.Start(drain.ModePause, false); err != nil {
		t.Fatal(err)
	}
}

// holderOf returns the index of the one node that lists a sandbox, or -1.
func holderOf(c *fakecluster.Cluster, id string) int {
	at := -1
	for i, n := range c.Nodes {
		if _, err := n.Daemon.Engine.Get(id); err == nil {
			if at >= 0 {
				return -2
			}
			at = i
		}
	}
	return at
}

// A paused sandbox of a node that is being drained goes on at another one, and requests find it there.
func TestAResumeMovesTheSandbox(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	id := pausedOn(t, c)
	sb := into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/resume", `{}`), 200)
	if at := holderOf(c, id); at < 1 || sb.ID != id || sb.Node != c.Nodes[at].Name || sb.Status != api.SandboxRunning {
		t.Fatalf("node %d has it: %+v", at, sb)
	}
	if got := into[api.SandboxInfo](t, do(t, c, "GET", "/v1/sandboxes/"+id, ""), 200); got.ID != id {
		t.Errorf("%+v", got)
	}
	// Another gateway has not seen the move. Its requests follow, also with a body.
	other := c.Another(t)
	run := `{"args":["echo","hi"]}`
	if r := into[api.ExecResponse](t, do(t, other, "POST", "/v1/sandboxes/"+id+"/exec", run), 200); r.Stdout != "hi\n" {
		t.Errorf("%+v", r)
	}
	into[api.SandboxInfo](t, do(t, c.Another(t), "POST", "/v1/sandboxes/"+id+"/resume", `{}`), 200)
	// A long body cannot be sent again. The next request finds the sandbox.
	late := c.Another(t)
	long := `{"args":["echo","` + strings.Repeat("x", 1<<17) + `"]}`
	wantError(t, do(t, late, "POST", "/v1/sandboxes/"+id+"/exec", long), api.CodeBusy, "")
	into[api.ExecResponse](t, do(t, late, "POST", "/v1/sandboxes/"+id+"/exec", long), 200)
	// Without its first node, only the others can tell.
	c.Nodes[0].Link.Hook(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	c.Await(t, 2)
	last := c.Another(t)
	into[api.SandboxInfo](t, do(t, last, "GET", "/v1/sandboxes/"+id, ""), 200)
	if a := do(t, last, "DELETE", "/v1/sandboxes/"+id, ""); a.StatusCode != 204 || holderOf(c, id) != -1 {
		t.Errorf("%d, node %d has it", a.StatusCode, holderOf(c, id))
	}
}

// E2B's clients connect to a sandbox of a node that is being drained, and find it with its metadata and its token.
func TestAConnectMovesTheSandbox(t *testing.T) {
	key := []string{"X-API-KEY", fakecluster.Token, "Authorization", ""}
	type created struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	for name, way := range map[string]struct {
		path   string
		status int
	}{"connect": {"/v2/sandboxes/%s/connect", 201}, "resume": {"/sandboxes/%s/resume", 201}} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 2, "py", nil)
			sb := into[created](t, do(t, c, "POST", "/v2/sandboxes", `{"templateID":"py","secure":true,"metadata":{"a":"b"}}`, key...), 201)
			from := holderOf(c, sandbox.CanonicalID(sb.ID))
			if from < 0 || sb.Token == "" {
				t.Fatalf("%+v is on node %d", sb, from)
			}
			if a := do(t, c, "POST", "/sandboxes/"+sb.ID+"/pause", "{}", key...); a.StatusCode != 204 {
				t.Fatalf("%d %s", a.StatusCode, a.body)
			}
			if err := c.Nodes[from].Daemon.Engine.Drain.Start(drain.ModePause, false); err != nil {
				t.Fatal(err)
			}
			got := into[created](t, do(t, c, "POST", fmt.Sprintf(way.path, sb.ID), `{"timeout":60}`, key...), way.status)
			if at := holderOf(c, sandbox.CanonicalID(sb.ID)); at != 1-from || got.Token != sb.Token || got.ID != sb.ID {
				t.Errorf("node %d has it: %+v, want %+v", at, got, sb)
			}
			type info struct {
				State    string            `json:"state"`
				Metadata map[string]string `json:"metadata"`
			}
			i := into[info](t, do(t, c.Another(t), "GET", "/sandboxes/"+sb.ID, "", key...), 200)
			if i.State != "running" || i.Metadata["a"] != "b" {
				t.Errorf("%+v", i)
			}
		})
	}
}

// A sandbox that cannot move stays, and the client gets the answer of its node.
func TestAResumeThatMovesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		resume func(w http.ResponseWriter)
		body   string
		code   api.Code
		asked  int64
	}{
		"bound": {func(w http.ResponseWriter) {
			http.Error(w, `{"code":"unsupported","reason":"sandbox_bound","error":"it has volumes"}`, 501)
		}, `{}`, api.CodeDraining, 1},
		"full": {func(w http.ResponseWriter) { http.Error(w, `{"code":"no_memory","error":"no memory"}`, 503) }, `{}`,
			api.CodeDraining, 2},
		"silent": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, `{}`, api.CodeTimeout, 1},
		"unsettled": {func(w http.ResponseWriter) {
			http.Error(w, `{"code":"no_resources","reason":"sandbox_unsettled"}`, 503)
		}, `{}`, api.CodeNoResources, 1},
		"own peers": {func(http.ResponseWriter) {}, `{"peers":["https://elsewhere:1"]}`, api.CodeDraining, 0},
		"to itself": {func(w http.ResponseWriter) {
			w.Header().Set(api.HeaderMovedTo, "node-a")
			http.Error(w, `{"code":"not_found","reason":"sandbox_moved"}`, 404)
		}, `{}`, api.CodeDraining, 2},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakecluster.Start(t, 4, "py", nil)
			id := pausedOn(t, cluster)
			var asked atomic.Int64
			for _, n := range cluster.Nodes[1:] {
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if strings.HasSuffix(r.URL.Path, "/resume") {
						asked.Add(1)
						c.resume(w)
						return
					}
					pass.ServeHTTP(w, r)
				})
			}
			a := do(t, cluster, "POST", "/v1/sandboxes/"+id+"/resume", c.body)
			e := into[api.Error](t, a, c.code.Status())
			if e.Code != c.code || holderOf(cluster, id) != 0 || asked.Load() != c.asked {
				t.Errorf("%+v, node %d has it, %d nodes were asked", e, holderOf(cluster, id), asked.Load())
			}
		})
	}
}

// A node that names itself or unknown nodes in its answers harms only its own sandboxes.
func TestAnswersThatNameOtherNodes(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	ids := []string{forkOn(t, c.Nodes[0]), forkOn(t, c.Nodes[1])}
	to := "node-a"
	lie := func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !strings.Contains(r.URL.Path, "/v1/sandboxes/") {
			pass.ServeHTTP(w, r)
			return
		}
		w.Header().Set(api.HeaderMovedTo, to)
		http.Error(w, `{}`, 404)
	}
	c.Nodes[0].Link.Hook(lie)
	for _, to = range []string{"node-a", "node-x", "http://elsewhere", ""} {
		for _, path := range []string{"", "/resume"} {
			method := map[string]string{"": "GET", "/resume": "POST"}[path]
			if a := do(t, c, method, "/v1/sandboxes/"+ids[0]+path, ""); a.StatusCode < 400 {
				t.Errorf("%s to %q: %d", method, to, a.StatusCode)
			}
		}
	}
	c.Nodes[1].Link.Hook(lie) // now each sends to the other
	to = "node-a"
	into[api.Error](t, do(t, c, "GET", "/v1/sandboxes/"+ids[0], ""), 503)
	c.Nodes[1].Link.Hook(nil)
	into[api.SandboxInfo](t, do(t, c, "GET", "/v1/sandboxes/"+ids[1], ""), 200)
}

// Only clients with a credential make the gateway ask all nodes, and few of them at once.
func TestSearchesAreBounded(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	id := forkOn(t, c.Nodes[0])
	var asked atomic.Int64
	for _, n := range c.Nodes[1:] {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if strings.Contains(r.URL.Path, id) {
				asked.Add(1)
			}
			pass.ServeHTTP(w, r)
		})
	}
	c.Nodes[0].Link.Hook(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	c.Await(t, 2)
	if a := do(t, c, "GET", "/v1/sandboxes/"+id, "", "Authorization", ""); a.StatusCode < 400 || asked.Load() != 0 {
		t.Errorf("%d, %d nodes were asked", a.StatusCode, asked.Load())
	}
	wantError(t, do(t, c, "GET", "/v1/sandboxes/"+id, ""), api.CodeGuestGone, api.ReasonNodeUnreachable)
	if asked.Load() != 2 {
		t.Errorf("%d nodes were asked", asked.Load())
	}
	wrong := do(t, c, "GET", "/v1/sandboxes/"+id, "", "Authorization", "Bearer "+fmt.Sprintf("%032d", 7))
	if wrong.StatusCode < 400 {
		t.Errorf("%d %s", wrong.StatusCode, wrong.body)
	}
	// One other node, which refuses the credential: that is no place of the sandbox.
	c.Nodes[1].Link.Hook(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	c.Await(t, 1)
	do(t, c, "GET", "/v1/sandboxes/"+id, "", "Authorization", "Bearer "+fmt.Sprintf("%032d", 7))
	c.Nodes[0].Link.Hook(nil)
	c.Await(t, 2)
	into[api.SandboxInfo](t, do(t, c, "GET", "/v1/sandboxes/"+id, ""), 200)
}
