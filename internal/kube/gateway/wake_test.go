package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
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

// asleepOn returns a cluster and a paused sandbox of its first node, which is being drained. Requests to its guest may
// resume it. A server at port 8080 sends the bodies of requests back.
func asleepOn(t *testing.T, nodes int, key string) (c *fakecluster.Cluster, id string) {
	t.Helper()
	c = fakecluster.Start(t, nodes, "py", func(cfg *gateway.Config) { cfg.ResumeKey = key })
	for _, n := range c.Nodes {
		n.Daemon.Engine.Ports = map[uint16]func(net.Conn){8080: echo}
	}
	id = forkOn(t, c.Nodes[0])
	into[api.SandboxInfo](t, do(t, c, "PATCH", "/v1/sandboxes/"+id+"/life", `{"auto_resume":true}`,
		"Content-Type", "application/json"), 200)
	into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/pause", `{}`), 200)
	drainFirst(t, c)
	draining := func() bool {
		facts, _ := c.Set.ByName("node-a").Facts()
		return facts.Draining
	}
	for until := time.Now().Add(20 * time.Second); !draining(); {
		if time.Now().After(until) {
			t.Fatal("the gateway does not know of the drain")
		}
		time.Sleep(10 * time.Millisecond) // elapses: the polls of the set have their own pace
	}
	return c, id
}

// echo serves HTTP on a connection.
func echo(c net.Conn) {
	l := &once{conn: c, closed: make(chan struct{})}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set(api.HeaderError, "draining") // no server in a guest may say so
		_, _ = w.Write(append([]byte("got "), b...))
	})
	_ = (&http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			_ = l.Close()
		}
	}}).Serve(l)
}

// once is a listener with one connection.
type once struct {
	conn   net.Conn
	given  atomic.Bool
	end    sync.Once
	closed chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	if l.given.CompareAndSwap(false, true) {
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *once) Close() error {
	l.end.Do(func() { close(l.closed) })
	return nil
}

func (l *once) Addr() net.Addr { return l.conn.LocalAddr() }

func moves(t *testing.T, c *fakecluster.Cluster, result string) (n float64) {
	t.Helper()
	all, err := c.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "forkd_gateway_moves_total" && m.GetLabel()[0].GetValue() == result {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Requests to the guest of a paused sandbox move it away from a node that is being drained, once for all of them, and
// arrive with their bodies.
func TestRequestsToAGuestMoveTheSandbox(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<16)
	type shot struct {
		method, path, body string
		headers            []string
		status             int
		want               string
	}
	port := func(id string) []string {
		return []string{"Host", "8080-" + sandbox.DNSID(id) + "." + fakecluster.Domain}
	}
	for name, of := range map[string]func(id string) shot{
		"exec": func(id string) shot {
			return shot{"POST", "/v1/sandboxes/" + id + "/exec", `{"args":["echo","hi"]}`, nil, 200, `"stdout":"hi\n"`}
		},
		"exec with a long body": func(id string) shot {
			return shot{"POST", "/v1/sandboxes/" + id + "/exec", `{"args":["echo","` + long[:1<<17] + `"]}`, nil, 200,
				long[:1<<17]}
		},
		"port": func(id string) shot { return shot{"GET", "/x", "", append(port(id), "Authorization", ""), 200, "got "} },
		"port with a body": func(id string) shot {
			return shot{"POST", "/x", "short", append(port(id), "Authorization", ""), 200, "got short"}
		},
		"port with a long body": func(id string) shot {
			return shot{"POST", "/x", long, append(port(id), "Authorization", ""), 200, "got " + long}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := asleepOn(t, 3, fakecluster.Token)
			s := of(id)
			var requests sync.WaitGroup
			for range 8 {
				requests.Go(func() {
					a, err := try(t.Context(), c, s.method, s.path, s.body, s.headers...)
					if err != nil || a.StatusCode != s.status || !strings.Contains(a.body, s.want) {
						t.Errorf("%v, %d %.200s", err, a.StatusCode, a.body)
					}
				})
			}
			requests.Wait()
			if at := holderOf(c, id); at < 1 || moves(t, c, "moved") != 1 {
				t.Errorf("node %d has it after %v moves", at, moves(t, c, "moved"))
			}
		})
	}
}

// A sandbox stays if a request has no right to move it, and the client gets a reason and a cure.
func TestRequestsToAGuestThatMoveNothing(t *testing.T) {
	exec := func(id string) []string {
		return []string{"POST", "/v1/sandboxes/" + id + "/exec", `{"args":["echo","hi"]}`}
	}
	port := func(id string) []string {
		return []string{"GET", "/", "", "Host", "8080-" + sandbox.DNSID(id) + "." + fakecluster.Domain, "Authorization", ""}
	}
	for name, way := range map[string]struct {
		key     string
		request func(id string) []string
		before  string // a change of the sandbox
		status  int
		text    string
	}{
		"port without a key of the gateway": {"", port, `{}`, 503, "/resume"},
		"port with a wrong key":             {strings.Repeat("7", 32), port, `{}`, 503, "/resume"},
		"no auto_resume":                    {fakecluster.Token, exec, `{"auto_resume":false}`, 409, "paused"},
		"port, no auto_resume":              {fakecluster.Token, port, `{"auto_resume":false}`, 502, ""},
		"wrong credential": {fakecluster.Token, func(id string) []string {
			return append(exec(id), "Authorization", "Bearer "+strings.Repeat("7", 32))
		}, `{}`, 401, ""},
		"no guest": {fakecluster.Token, func(id string) []string { return []string{"POST", "/v1/sandboxes/" + id + "/branch", `{}`} },
			`{}`, 503, "drain"},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := asleepOn(t, 2, way.key)
			into[api.SandboxInfo](t, do(t, c, "PATCH", "/v1/sandboxes/"+id+"/life", way.before), 200)
			q := way.request(id)
			a := do(t, c, q[0], q[1], q[2], q[3:]...)
			if a.StatusCode != way.status || !strings.Contains(a.body, way.text) || holderOf(c, id) != 0 {
				t.Errorf("%d %s, node %d has it", a.StatusCode, a.body, holderOf(c, id))
			}
		})
	}
}

// The key of the gateway needs the scopes read and fork, and no other.
func TestTheScopesOfAResumeKey(t *testing.T) {
	const key = "the gateway's key, of each node"
	for scopes, moved := range map[string]float64{"read,fork": 1, "read": 0, "fork": 0, "run,layers": 0} {
		t.Run(scopes, func(t *testing.T) {
			c, id := asleepOn(t, 2, key)
			for _, n := range c.Nodes {
				body := `{"name":"resume","scopes":["` + strings.ReplaceAll(scopes, ",", `","`) + `"]}`
				own := into[api.NewKey](t, do(t, c, "POST", "/v1/keys", body, "Forkd-Node", n.Name), 201)
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if r.Header.Get("Authorization") == "Bearer "+key {
						r.Header.Set("Authorization", "Bearer "+own.Text)
					}
					pass.ServeHTTP(w, r)
				})
			}
			a := do(t, c, "GET", "/", "", "Host", "8080-"+sandbox.DNSID(id)+"."+fakecluster.Domain, "Authorization", "")
			if moves(t, c, "moved") != moved || holderOf(c, id) != int(moved) || (a.StatusCode == 200) != (moved == 1) {
				t.Errorf("%d %s, node %d has it", a.StatusCode, a.body, holderOf(c, id))
			}
		})
	}
}

// A node without memory answers a request to a guest. The sandbox moves if another node takes it; if none does, the
// nodes are not asked again for every request.
func TestAGuestOfAFullNode(t *testing.T) {
	c := fakecluster.Start(t, 4, "py", nil)
	id := forkOn(t, c.Nodes[0])
	into[api.SandboxInfo](t, do(t, c, "PATCH", "/v1/sandboxes/"+id+"/life", `{"auto_resume":true}`), 200)
	into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/pause", `{}`), 200)
	c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set(api.HeaderError, string(api.CodeNoMemory))
			http.Error(w, `{"code":"no_memory","error":"no memory"}`, 503)
			return
		}
		pass.ServeHTTP(w, r)
	})
	var asked atomic.Int64
	var full atomic.Bool
	full.Store(true)
	for _, n := range c.Nodes[1:] {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if strings.HasSuffix(r.URL.Path, "/resume") && full.Load() {
				asked.Add(1)
				http.Error(w, `{"code":"no_memory","error":"no memory"}`, 503)
				return
			}
			pass.ServeHTTP(w, r)
		})
	}
	run := func(c *fakecluster.Cluster, size int) answer {
		return do(t, c, "POST", "/v1/sandboxes/"+id+"/exec", fmt.Sprintf(`{"args":["echo","%s"]}`, bytes.Repeat([]byte("x"), size)))
	}
	for range 5 {
		if a := run(c, 1); a.StatusCode != 503 || !strings.Contains(a.body, "no memory") {
			t.Errorf("%d %s", a.StatusCode, a.body)
		}
	}
	if n := asked.Load(); n != 2 || holderOf(c, id) != 0 {
		t.Errorf("other nodes were asked %d times, node %d has it", n, holderOf(c, id))
	}
	full.Store(false)
	other := c.Another(t)
	wantError(t, run(other, 1<<17), api.CodeBusy, "") // the body is lost, the sandbox has moved
	if a := run(other, 1<<17); a.StatusCode != 200 || holderOf(c, id) < 1 {
		t.Errorf("%d %.200s, node %d has it", a.StatusCode, a.body, holderOf(c, id))
	}
}

// Strangers move no sandbox: the node refuses their requests to private ports first.
func TestARequestToAPrivatePortMovesNothing(t *testing.T) {
	c, _ := asleepOn(t, 2, fakecluster.Token)
	first := c.Nodes[0].Daemon.Engine
	if err := first.Drain.Cancel(); err != nil {
		t.Fatal(err)
	}
	private := true
	res, err := first.Fork(t.Context(), sandbox.ForkRequest{Tag: "py", N: 1, PrivatePorts: &private})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Children[0].Info.ID
	into[api.SandboxInfo](t, do(t, c, "PATCH", "/v1/sandboxes/"+id+"/life", `{"auto_resume":true}`), 200)
	into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/pause", `{}`), 200)
	drainFirst(t, c)
	for _, body := range []string{"", strings.Repeat("x", 1<<20)} {
		a := do(t, c, "POST", "/", body, "Host", "8080-"+sandbox.DNSID(id)+"."+fakecluster.Domain, "Authorization", "")
		if a.StatusCode != http.StatusForbidden || holderOf(c, id) != 0 || moves(t, c, "moved") != 0 {
			t.Errorf("%d %s, node %d has it", a.StatusCode, a.body, holderOf(c, id))
		}
	}
}
