package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// answer is a response that was read to its end.
type answer struct {
	*http.Response
	body string
	err  error // of the body
}

// do sends a request with the operator's token. headers are pairs of name and value; a pair replaces the token,
// and an empty value removes it.
func do(t testing.TB, c *fakecluster.Cluster, method, path, body string, headers ...string) answer {
	t.Helper()
	a, err := try(t.Context(), c, method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(ctx context.Context, c *fakecluster.Cluster, method, path, body string, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp, string(b), err}, nil
}

// into checks the status and decodes the body.
func into[T any](t testing.TB, a answer, status int) T {
	t.Helper()
	var v T
	if a.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", a.StatusCode, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v: %q", err, a.body)
	}
	return v
}

func wantError(t testing.TB, a answer, code api.Code, reason api.Reason) {
	t.Helper()
	var e api.Error
	_ = json.Unmarshal([]byte(a.body), &e)
	if a.StatusCode != code.Status() || e.Code != code || e.Reason != reason || e.RequestID == "" {
		t.Errorf("%d %s, want %s %s", a.StatusCode, a.body, code, reason)
	}
}

const forkOne = `{"snapshot_tag":"py"}`

func sum(list []int) (n int) {
	for _, i := range list {
		n += i
	}
	return n
}

func TestForksSpreadOverNodes(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	var forks sync.WaitGroup
	for range 100 {
		forks.Go(func() {
			a, err := try(t.Context(), c, "POST", "/v1/sandboxes", forkOne)
			if err != nil || a.StatusCode != 201 {
				t.Error(err, a.body)
			}
		})
	}
	forks.Wait()
	if n := c.Sandboxes(); sum(n) != 100 || slices.Min(n) < 10 {
		t.Errorf("the nodes have %v sandboxes", n)
	}
}

func TestAForkOfAHundredIsSpread(t *testing.T) {
	for name, accept := range map[string]string{"list": "application/json", "lines": "application/x-ndjson"} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 3, "py", nil)
			a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":100,"env":{"A":"b"}}`, "Accept", accept)
			var all []api.SandboxInfo
			if name == "list" {
				all = into[[]api.SandboxInfo](t, a, 201)
				if !slices.IsSortedFunc(all, func(a, b api.SandboxInfo) int { return a.Index - b.Index }) {
					t.Error("the children are not in order")
				}
				if a.Header.Get(api.HeaderReadyWall) == "0" || a.Header.Get(api.HeaderReadyWall) == "" {
					t.Error("no time of the whole fork")
				}
			} else {
				all = childrenOf(t, a)
			}
			indexes, nodes := map[int]bool{}, map[sandbox.NodeKey]int{}
			for _, s := range all {
				indexes[s.Index] = true
				nodes[sandbox.NodeKeyIn(s.ID)]++
			}
			if len(all) != 100 || len(indexes) != 100 || !indexes[1] || !indexes[100] {
				t.Errorf("%d children, %d indexes", len(all), len(indexes))
			}
			if n := c.Sandboxes(); sum(n) != 100 || len(nodes) < 2 {
				t.Errorf("the nodes have %v sandboxes", n)
			}
		})
	}
}

// childrenOf returns the children of a stream, which has to end with totals.
func childrenOf(t testing.TB, a answer) (all []api.SandboxInfo) {
	t.Helper()
	ended := false
	for line := range strings.Lines(a.body) {
		var l api.ForkLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || ended {
			t.Fatalf("%v: %q", err, line)
		}
		if l.Child != nil {
			all = append(all, *l.Child)
		}
		ended = l.Fork != nil
	}
	if !ended {
		t.Errorf("the stream has no end: %q", a.body)
	}
	return all
}

// isFork reports whether a request makes sandboxes.
func isFork(r *http.Request) bool { return r.Method == "POST" && r.URL.Path == "/v1/sandboxes" }

// cut breaks a connection off.
func cut(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

func TestALostAnswerMakesNoSecondSandbox(t *testing.T) {
	proxy := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<h1>upstream error</h1>")
		}
	}
	for name, tt := range map[string]struct {
		body string
		lose func(http.ResponseWriter)
	}{
		"one": {forkOne, cut}, "many": {`{"snapshot_tag":"py","n":30}`, cut}, "by a proxy": {forkOne, proxy(502)},
		"many by a proxy": {`{"snapshot_tag":"py","n":30}`, proxy(503)},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 3, "py", nil)
			var mu sync.Mutex
			asked := map[string]int{} // by request id
			for _, n := range c.Nodes {
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if !isFork(r) {
						pass.ServeHTTP(w, r)
						return
					}
					id := r.Header.Get("Idempotency-Key")
					mu.Lock()
					asked[id]++
					lost := asked[id] == 1
					mu.Unlock()
					if lost {
						pass.ServeHTTP(httptest.NewRecorder(), r)
						tt.lose(w)
						return
					}
					pass.ServeHTTP(w, r)
				})
			}
			all := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", tt.body), 201)
			if n := sum(c.Sandboxes()); n != len(all) {
				t.Errorf("%d sandboxes run, %d are in the answer", n, len(all))
			}
			for _, s := range all {
				if s.ID == "" {
					t.Errorf("child %d failed: %s", s.Index, s.Error)
				}
			}
			for id, n := range asked {
				if n != 2 || id == "" {
					t.Errorf("request %q was sent %d times", id, n)
				}
			}
		})
	}
}

// A request with unknown outcome is not sent to another node.
func TestANodeWithoutAnyAnswer(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", func(g *gateway.Config) { g.AnswerTime = 100 * time.Millisecond })
	var mu sync.Mutex
	nodes := map[string]int{}
	for _, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if !isFork(r) {
				pass.ServeHTTP(w, r)
				return
			}
			mu.Lock()
			nodes[n.Name]++
			mu.Unlock()
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
	}
	wantError(t, do(t, c, "POST", "/v1/sandboxes", forkOne), api.CodeTimeout, api.ReasonNodeSilent)
	mu.Lock()
	defer mu.Unlock()
	if len(nodes) != 1 {
		t.Errorf("nodes asked: %v", nodes)
	}
}

func TestANodeIsKilledMidWay(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	var made, silent atomic.Int32
	fork := func() {
		a, err := try(t.Context(), c, "POST", "/v1/sandboxes", forkOne)
		switch {
		case err != nil:
			t.Error(err)
		case a.StatusCode == 201:
			made.Add(1)
		case a.StatusCode == 504 && strings.Contains(a.body, string(api.ReasonNodeSilent)):
			silent.Add(1)
		default:
			t.Errorf("%d %s", a.StatusCode, a.body)
		}
	}
	var forks sync.WaitGroup
	for i := range 120 {
		if i == 40 {
			c.Nodes[1].Link.Listener.Close()
			c.Nodes[1].Link.CloseClientConnections()
		}
		forks.Go(fork)
		if i%20 == 19 {
			forks.Wait()
		}
	}
	forks.Wait()
	if n := sum(c.Sandboxes()); int(made.Load()) > n || int(made.Load()+silent.Load()) != 120 {
		t.Errorf("%d sandboxes run, %d were answered, %d requests have no known outcome", n, made.Load(), silent.Load())
	}
	if silent.Load() > 40 {
		t.Errorf("%d of 120 requests without a known outcome", silent.Load())
	}
	c.Await(t, 2)
	for range 20 {
		if a := do(t, c, "POST", "/v1/sandboxes", forkOne); a.StatusCode != 201 {
			t.Fatalf("after the loss of a node: %s", a.body)
		}
	}
	list := do(t, c, "GET", "/v1/sandboxes", "")
	if got := list.Header.Get("Forkd-Nodes-Missing"); got != string(c.Nodes[1].Key) {
		t.Errorf("missing in the list: %q", got)
	}
	into[[]api.SandboxInfo](t, list, 200)
	id := c.Nodes[1].Daemon.Engine.List()[0].ID
	wantError(t, do(t, c, "GET", "/v1/sandboxes/"+id, ""), api.CodeGuestGone, api.ReasonNodeUnreachable)
}

func TestRefusalsLeadToAnotherNode(t *testing.T) {
	for name, e := range map[string]api.Error{
		"no memory": {Code: api.CodeNoMemory}, "busy": {Code: api.CodeBusy}, "draining": {Code: api.CodeDraining},
		"closing": {Code: api.CodeClosing}, "no space": {Code: api.CodeNoSpace},
		"deleted": {Code: api.CodeNotFound, Reason: api.ReasonSnapshotNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 3, "py", nil)
			refuse := func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if !isFork(r) {
					pass.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(e.Code.Status())
				_ = json.NewEncoder(w).Encode(e)
			}
			c.Nodes[0].Link.Hook(refuse)
			c.Nodes[1].Link.Hook(refuse)
			for range 10 {
				into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
			}
			c.Nodes[2].Link.Hook(refuse)
			a := do(t, c, "POST", "/v1/sandboxes", forkOne)
			if a.StatusCode != e.Code.Status() || !strings.Contains(a.body, string(e.Code)) {
				t.Errorf("all refuse: %d %s", a.StatusCode, a.body)
			}
			if n := c.Sandboxes(); n[0] != 0 || n[1] != 0 || n[2] != 10 {
				t.Errorf("the nodes have %v sandboxes", n)
			}
		})
	}
}

// Other errors are the client's, and no other node is asked.
func TestOtherErrorsAreFinal(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	var asked atomic.Int32
	for _, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if isFork(r) {
				asked.Add(1)
			}
			pass.ServeHTTP(w, r)
		})
	}
	for body, code := range map[string]api.Code{
		`{"snapshot_tag":"py","n":0}`: api.CodeInvalid, `{"snapshot_tag":"py","colour":1}`: api.CodeInvalid,
		`{"snapshot_tag":`: api.CodeInvalid, `[]`: api.CodeInvalid, `{"n":2}`: api.CodeInvalid,
	} {
		asked.Store(0)
		if a := do(t, c, "POST", "/v1/sandboxes", body); a.StatusCode != code.Status() || asked.Load() != 1 {
			t.Errorf("%s: %d after %d questions, %s", body, a.StatusCode, asked.Load(), a.body)
		}
	}
	asked.Store(0)
	if a := do(t, c, "POST", "/v1/sandboxes", forkOne, "Authorization", "Bearer wrong"); a.StatusCode != 401 || asked.Load() != 1 {
		t.Errorf("a wrong key: %d after %d questions", a.StatusCode, asked.Load())
	}
	wantNotFound := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"none"}`)
	wantError(t, wantNotFound, api.CodeNotFound, api.ReasonSnapshotNotFound)
	if a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"none"}`, "Authorization", "Bearer wrong"); a.StatusCode != 401 {
		t.Errorf("a wrong key and an unknown snapshot: %d %s", a.StatusCode, a.body)
	}
}

func TestALyingNode(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	lie := func(change func(*api.Node)) fakecluster.Hook {
		return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			switch {
			case r.URL.Path == "/v1/node":
				rec := httptest.NewRecorder()
				pass.ServeHTTP(rec, r)
				var n api.Node
				_ = json.Unmarshal(rec.Body.Bytes(), &n)
				change(&n)
				_ = json.NewEncoder(w).Encode(n)
			case isFork(r):
				w.WriteHeader(503)
				_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeNoMemory})
			default:
				pass.ServeHTTP(w, r)
			}
		}
	}
	c.Nodes[0].Link.Hook(lie(func(n *api.Node) { n.Memory.Total, n.Memory.Free = 1<<62, 1<<62 }))
	for range 30 {
		into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	}
	if n := c.Sandboxes(); n[0] != 0 || n[1] == 0 || n[2] == 0 {
		t.Errorf("the nodes have %v sandboxes", n)
	}
	c.Nodes[0].Link.Hook(lie(func(n *api.Node) { n.Key, n.UID = string(c.Nodes[1].Key), "uid-node-b" }))
	c.Await(t, 2) // a node with the identity of another is not used
	for range 10 {
		into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	}
	id := "sb-2222222222222222" + string(c.Nodes[0].Key)
	wantError(t, do(t, c, "GET", "/v1/sandboxes/"+id, ""), api.CodeGuestGone, api.ReasonNodeUnreachable)
}

func TestAClientThatLeavesEndsAllParts(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	var waiting atomic.Int32
	var first atomic.Bool
	gone := make(chan struct{}, 10)
	for _, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if !isFork(r) || !first.CompareAndSwap(false, true) {
				pass.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			waiting.Add(1)
			<-r.Context().Done()
			gone <- struct{}{}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", c.URL+"/v1/sandboxes", strings.NewReader(`{"snapshot_tag":"py","n":60}`))
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	r.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 40 { // two of three parts
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
	if n := sum(c.Sandboxes()); n != 40 {
		t.Fatalf("%d sandboxes run", n)
	}
	cancel()
	<-gone
	for until := time.Now().Add(20 * time.Second); sum(c.Sandboxes()) > 0; {
		if time.Now().After(until) {
			t.Fatalf("%v sandboxes are left", c.Sandboxes())
		}
		time.Sleep(10 * time.Millisecond) // elapses: the gateway ends them after the request
	}
}

func TestANewSnapshotIsFoundAtOnce(t *testing.T) {
	c := fakecluster.Start(t, 3, "", nil)
	for i := range 10 {
		tag := fmt.Sprint("new-", i)
		into[api.SnapshotInfo](t, do(t, c, "POST", "/v1/snapshots", `{"tag":"`+tag+`","image":"python-numpy"}`), 201)
		s := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"`+tag+`"}`), 201)
		into[api.SnapshotInfo](t, do(t, c, "POST", "/v1/sandboxes/"+s[0].ID+"/branch", `{"tag":"b-`+tag+`"}`), 201)
		into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"b-`+tag+`"}`), 201)
		into[api.SnapshotDetail](t, do(t, c, "GET", "/v1/snapshots/b-"+tag+"/info", ""), 200)
	}
	if a := do(t, c, "POST", "/v1/snapshots", `{"tag":"new-0","image":"python-numpy"}`); a.StatusCode != 409 {
		t.Errorf("a tag that exists on a node: %d %s", a.StatusCode, a.body)
	}
	if a := do(t, c, "DELETE", "/v1/snapshots/b-new-1?force=true", ""); a.StatusCode != 204 {
		t.Errorf("delete: %d %s", a.StatusCode, a.body)
	}
	if a := do(t, c, "GET", "/v1/snapshots/b-new-1/info", ""); a.StatusCode != 404 {
		t.Errorf("after the deletion: %d %s", a.StatusCode, a.body)
	}
}

// A node without room, or one that breaks off, fails its own part only.
func TestAPartOfAForkFails(t *testing.T) {
	breakOff := func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !isFork(r) {
			pass.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		pass.ServeHTTP(rec, r)
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		cut(w)
	}
	for name, accept := range map[string]string{"list": "application/json", "lines": "application/x-ndjson"} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 2, "py", nil)
			c.Nodes[0].Link.Hook(breakOff)
			a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":40}`, "Accept", accept)
			var all []api.SandboxInfo
			if name == "list" {
				all = into[[]api.SandboxInfo](t, a, 201)
			} else {
				all = childrenOf(t, a)
			}
			failed, indexes := 0, map[int]bool{}
			for _, s := range all {
				indexes[s.Index] = true
				if s.ID == "" {
					failed++
					if s.Code != api.CodeTimeout || s.Status != api.SandboxFailed || s.SnapshotTag != "py" {
						t.Errorf("%+v", s)
					}
				}
			}
			if used := c.Sandboxes()[0] > 0; len(indexes) != 40 || len(all) != 40 || used != (failed > 0) || failed == 40 {
				t.Errorf("%d children, %d failed, on both nodes: %v", len(all), failed, used)
			}
			for _, n := range c.Nodes {
				n.Daemon.Engine.Limit = 0
			}
			c.Nodes[0].Link.Hook(nil)
			if a := do(t, c, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":40}`, "Accept", accept); a.StatusCode != 503 {
				t.Errorf("no node has room: %d %s", a.StatusCode, a.body)
			}
		})
	}
}

// A client may repeat its own request: the gateway asks the same node.
func TestARepetitionByTheClient(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	for i := range 10 {
		key := fmt.Sprint("key-", i)
		first := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne, "Idempotency-Key", key), 201)
		for range 3 {
			again := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne, "Idempotency-Key", key), 201)
			if again[0].ID != first[0].ID {
				t.Errorf("%s, then %s", first[0].ID, again[0].ID)
			}
		}
	}
	if n := sum(c.Sandboxes()); n != 10 {
		t.Errorf("%d sandboxes run, want 10", n)
	}
	made := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne, "Idempotency-Key", "lost"), 201)
	for _, n := range c.Nodes {
		if n.Key == sandbox.NodeKeyIn(made[0].ID) {
			n.Link.Listener.Close()
			n.Link.CloseClientConnections()
		}
	}
	// The node has the answer, and cannot be reached: another node would make a second sandbox.
	if a := do(t, c, "POST", "/v1/sandboxes", forkOne, "Idempotency-Key", "lost"); a.StatusCode != 503 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if n := sum(c.Sandboxes()); n != 11 {
		t.Errorf("%d sandboxes run, want 11", n)
	}
}
