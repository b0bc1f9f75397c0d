// Package fakecluster runs daemons with fake engines as the nodes of a cluster, and a gateway in front of them. A test
// can also bring nodes of its own. Each node has a link, on which tests delay, change or lose requests and answers. The
// trap: the nodes have a snapshot of the same name each, as after a copy to every node.
package fakecluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/api/routes/sandboxes"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// Token is the operator's token of each node.
const Token = fakedaemon.Token

// Domain is the domain of sandboxes' host names.
const Domain = "forkd.localhost"

// Cluster is a running cluster.
type Cluster struct {
	// URL is the gateway's address.
	URL string
	// Nodes are its nodes.
	Nodes []*Node
	// Gateway, Set and Registry are the parts of the gateway.
	Gateway  *gateway.Gateway
	Set      *nodes.Set
	Registry *prometheus.Registry
	// List is the path of the list of nodes.
	List string

	board *placement.Board
	log   *slog.Logger
	close func()
}

// Node is a node of the cluster.
type Node struct {
	// Name is the node's name.
	Name string
	// Daemon is the node's daemon. It is nil for a node of the test's own.
	Daemon *fakedaemon.Daemon
	// Link is the way to the daemon.
	Link *Link
	// Key is in the ids of its sandboxes.
	Key sandbox.NodeKey
	// CAFile has the authority of the link's certificate. It is empty for a link without TLS.
	CAFile string
}

// UID returns the UID of the node with a name.
func UID(name string) string { return "uid-" + name }

// Link passes requests on to a daemon.
type Link struct {
	*httptest.Server
	hook atomic.Pointer[Hook]
}

// Hook serves a request on a link. pass sends it to the daemon.
type Hook func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// Hook replaces the link's hook. nil removes it.
func (l *Link) Hook(h Hook) {
	if h == nil {
		l.hook.Store(nil)
		return
	}
	l.hook.Store(&h)
}

// Start starts a cluster of n nodes. Each has a snapshot with the tag, if it is not empty. change may change the
// gateway's settings.
func Start(t testing.TB, n int, tag string, change func(*gateway.Config)) *Cluster {
	t.Helper()
	var list []*Node
	for i := range n {
		list = append(list, startNode(t, fmt.Sprintf("node-%c", 'a'+i), tag))
	}
	return Over(t, list, 100*time.Millisecond, change)
}

// Over starts the gateway of a cluster over nodes, whose daemons know Token and have the UIDs of UID. It polls them in
// the interval every.
func Over(t testing.TB, list []*Node, every time.Duration, change func(*gateway.Config)) *Cluster {
	t.Helper()
	c := &Cluster{List: filepath.Join(t.TempDir(), "nodes.yaml"), Registry: prometheus.NewRegistry(), Nodes: list}
	c.WriteList(t, c.Nodes...)
	board := placement.New(placement.Config{})
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c.Set = nodes.NewSet(nodes.Config{Board: board, Every: every, Longest: 4 * every,
		Log: log})
	cfg := gateway.Config{Nodes: c.Set, Board: board, Domain: Domain, Metrics: c.Registry, Log: log,
		TemplateTag: templates.TagOr}
	if change != nil {
		change(&cfg)
	}
	c.log, c.board = log, board
	c.serve(t, cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Set.Run(ctx, nodes.File{Path: c.List, Every: 20 * time.Millisecond})
	}()
	t.Cleanup(func() {
		c.close()
		stop()
		<-ended
	})
	c.Await(t, len(list))
	return c
}

// serve starts the gateway.
func (c *Cluster) serve(t testing.TB, cfg gateway.Config) {
	t.Helper()
	c.Gateway = gateway.New(cfg)
	front := httptest.NewUnstartedServer(c.Gateway)
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	c.URL = front.URL
	c.close = func() {
		front.CloseClientConnections()
		front.Close()
		c.Gateway.Wait()
	}
}

// Another starts one more gateway for the nodes. It has no metrics.
func (c *Cluster) Another(t testing.TB) *Cluster {
	t.Helper()
	other := *c
	other.serve(t, gateway.Config{Nodes: c.Set, Board: c.board, Domain: Domain, Log: c.log})
	t.Cleanup(other.close)
	return &other
}

// Await waits until so many nodes answer.
func (c *Cluster) Await(t testing.TB, n int) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; {
		up := 0
		for _, node := range c.Set.All() {
			if node.Up() {
				up++
			}
		}
		if up == n {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d nodes answer, want %d", up, n)
		}
		time.Sleep(10 * time.Millisecond) // elapses: the polls of the set have their own pace
	}
}

// WriteList replaces the list of nodes.
func (c *Cluster) WriteList(t testing.TB, list ...*Node) {
	t.Helper()
	var b strings.Builder
	for _, n := range list {
		fmt.Fprintf(&b, "- {name: %s, uid: %s, url: %q, token-file: %q, ca-file: %q}\n", n.Name, UID(n.Name), n.Link.URL,
			c.List+".token", n.CAFile)
	}
	for path, text := range map[string]string{c.List: b.String(), c.List + ".token": Token + "\n"} {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// Sandboxes returns the number of sandboxes on each node.
func (c *Cluster) Sandboxes() []int {
	var all []int
	for _, n := range c.Nodes {
		all = append(all, len(n.Daemon.Engine.List()))
	}
	return all
}

func startNode(t testing.TB, name, tag string) *Node {
	t.Helper()
	uid := UID(name)
	n := &Node{Name: name, Key: sandbox.NodeKeyOf(uid)}
	e2b := t.TempDir()
	var err error
	n.Daemon, err = fakedaemon.StartNode(daemon.Node{Name: name, UID: uid, Key: n.Key, ChildMemory: 8 << 20},
		func(e *fakeengine.Engine) httpapi.Ingress { return outside(t, e, e2b) }, "python-numpy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Daemon.Close)
	n.Daemon.Engine.Wakes = true
	if tag != "" {
		_, err := n.Daemon.Engine.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: tag, Image: "python-numpy"},
			func(sandbox.Step) {})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Link = NewLink(&url.URL{Scheme: "http", Host: strings.TrimPrefix(n.Daemon.TCP, "tcp://")}, nil)
	n.Link.Start()
	t.Cleanup(func() {
		n.Link.CloseClientConnections()
		n.Link.Close()
	})
	return n
}

// NewLink returns a link to the daemon at an address, which the caller starts. A nil transport is the default one.
func NewLink(to *url.URL, transport http.RoundTripper) *Link {
	pass := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode >= 400 {
				resp.Header.Set("Connection", "close") // as a daemon: it does not wait for the rest of the body
			}
			return nil
		}}
	l := &Link{}
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := l.hook.Load(); h != nil {
			(*h)(w, r, pass)
			return
		}
		w = earlyanswer.Allow(w, r) // as a daemon
		pass.ServeHTTP(w, r)
	}))
	l.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	return l
}

// both serves E2B's API and ports of sandboxes.
type both struct {
	*e2bapi.Handler
	ports  *ingress.Handler
	store  *records.Store
	server *atomic.Pointer[httpapi.Server]
}

// Carrier implements fakedaemon.Outside.
func (b both) Carrier() sandboxes.Carrier { return b.store }

// Use implements fakedaemon.Outside.
func (b both) Use(s *httpapi.Server) { b.server.Store(s) }

// lives has no deadlines.
type lives struct{ *fakeengine.Engine }

func (l lives) Pause(ctx context.Context, id string, filesystemOnly bool) error {
	_, err := l.Engine.Pause(ctx, id, sandbox.PauseOptions{FilesystemOnly: filesystemOnly})
	return err
}

func (l lives) Resume(ctx context.Context, id string) error {
	_, err := l.Engine.Resume(ctx, id)
	return err
}

func (l lives) SetLife(context.Context, string, e2bapi.Life) error { return nil }
func (l lives) Settle(context.Context, string) error               { return nil }
func (l lives) Touch(string)                                       {}

func (l lives) Wake(ctx context.Context, id string) error {
	info, err := l.Get(id)
	if err == nil && info.Status == sandbox.StatusPaused && info.Life.AutoResume {
		return l.Resume(ctx, id)
	}
	return err
}

func (b both) Match(r *http.Request) bool { return b.Handler.Match(r) || b.ports.Match(r) }

func (b both) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.Handler.Match(r) {
		b.Handler.ServeHTTP(w, r)
		return
	}
	b.ports.ServeHTTP(w, r)
}

func outside(t testing.TB, e *fakeengine.Engine, dir string) httpapi.Ingress {
	t.Helper()
	store, _, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ports := ingress.New(ingress.Config{Domain: Domain, Dialer: e, Guard: fakeengine.Guard{Of: e}})
	var server atomic.Pointer[httpapi.Server]
	h := e2bapi.New(e2bapi.Options{Engine: e, Records: store, Ports: ports, Domain: Domain, Lives: lives{e},
		Fetch: func(ctx context.Context, id string, peers []string) error {
			return server.Load().FetchSandbox(ctx, id, peers)
		},
		Authenticate: func(r *http.Request) (context.Context, error) {
			if r.Header.Get(api.HeaderKey) != Token {
				return nil, fmt.Errorf("the API key is missing or wrong")
			}
			return r.Context(), nil
		},
		View: func(context.Context) e2bapi.Engine { return e },
		Note: func(ctx context.Context, a e2bapi.Act) { requestinfo.NoteAct(ctx, requestinfo.Act(a)) },
	})
	return both{h, ports, store, &server}
}

// testLog writes to a test's log, unless the test has ended.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}
