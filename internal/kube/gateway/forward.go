package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// nodeKey is the context key for the node of a forwarded request.
type nodeKey struct{}

func nodeOf(ctx context.Context) *nodes.Node {
	n, _ := ctx.Value(nodeKey{}).(*nodes.Node)
	return n
}

// forward passes a request on to a node, and the answer back, both as they arrive. Upgraded connections, such as
// WebSockets and ports, become streams of bytes. A node may answer before it has the whole request.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, n *nodes.Node) {
	r = r.WithContext(context.WithValue(r.Context(), nodeKey{}, n))
	w = earlyanswer.Allow(w, r)
	g.proxy.ServeHTTP(w, r)
}

func (g *Gateway) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      toNodes{},
		ModifyResponse: movedAnswer,
		FlushInterval:  -1, // flush streams immediately
		ErrorLog:       slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client has left
			}
			n := nodeOf(r.Context())
			if moved := new(movedError); errors.As(err, &moved) {
				follow(g, w, hopOf(r.Context()), moved.to)
				return
			}
			if asleep := new(asleepError); errors.As(err, &asleep) {
				wakeElsewhere(g, w, hopOf(r.Context()), asleep.kept)
				return
			}
			g.cfg.Log.Warn("request to a node failed", "node", n.Name, "error", err)
			g.refuse(w, r, unreachable(n.Name))
		},
	}
}

// rewrite keeps Host, path and credential. httputil removes headers of the connection, and those about earlier
// proxies, which any client can forge.
func rewrite(p *httputil.ProxyRequest) {
	n := nodeOf(p.In.Context())
	p.Out.URL.Scheme, p.Out.URL.Host = n.URL.Scheme, n.URL.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // the node judges it
	p.Out.Host = p.In.Host
	id, port := p.In.Header.Get(headerRouterSandbox), p.In.Header.Get(headerRouterPort)
	dropForged(p.Out.Header)
	if full := fullID(id); sandbox.ValidID(full) && p.In.Header.Get(headerE2BSandbox) == "" {
		if port == "" {
			port = routerPort
		}
		p.Out.Header.Set(headerE2BSandbox, sandbox.DNSID(full))
		p.Out.Header.Set(headerE2BPort, port)
	}
	p.SetXForwarded()
}

// dropForged removes headers that a proxy would have set, and those for the gateway.
func dropForged(h http.Header) {
	for name := range h {
		lower := strings.ToLower(name)
		if lower == "forwarded" || lower == "x-real-ip" || lower == "forkd-node" ||
			strings.HasPrefix(lower, "x-forwarded-") || strings.HasPrefix(lower, "x-sandbox-") {
			delete(h, name)
		}
	}
}

// toNodes chooses the protocol to a node.
type toNodes struct{}

// RoundTrip implements http.RoundTripper.
func (toNodes) RoundTrip(r *http.Request) (*http.Response, error) {
	n := nodeOf(r.Context())
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return n.HTTP2.RoundTrip(r)
	}
	return n.HTTP.RoundTrip(r)
}

// toAny forwards to a random node that answers.
func (g *Gateway) toAny(w http.ResponseWriter, r *http.Request) {
	up := g.up()
	if len(up) == 0 {
		g.refuse(w, r, failf(api.CodeNoResources, api.ReasonNoNode, "no node of the cluster answers"))
		return
	}
	g.forward(w, r, up[rand.IntN(len(up))]) // #nosec G404 -- no secret
}

// toNode forwards requests about a node itself to the node in the header.
func (g *Gateway) toNode(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get(headerNode)
	if name == "" {
		g.refuse(w, r, failf(api.CodeUnsupported, "", "%s %s concerns one node: name it in the header %s, "+
			"or send the request to the node", r.Method, sandbox.Clip(r.URL.Path), headerNode))
		return
	}
	n := g.cfg.Nodes.ByName(name)
	if n == nil {
		g.refuse(w, r, failf(api.CodeNotFound, "", "no node has the name %s", sandbox.Clip(name)))
		return
	}
	g.forward(w, r, n)
}

// up returns the nodes that answered their last poll.
func (g *Gateway) up() []*nodes.Node {
	all := g.cfg.Nodes.All()
	return slices.DeleteFunc(slices.Clone(all), func(n *nodes.Node) bool { return !n.Up() })
}

// hopByHop are the headers of one connection.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for _, name := range strings.Split(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// request returns a request of the gateway's own to a node, with the client's headers.
func request(ctx context.Context, r *http.Request, n *nodes.Node, method, uri string,
	body io.Reader) (*http.Request, error) {
	if !strings.HasPrefix(uri, "/") { // otherwise it could name another host
		return nil, errors.New("the request has no path")
	}
	// #nosec G704 -- the host is the node's, and the client chooses the path only
	out, err := http.NewRequestWithContext(ctx, method, n.URL.String()+uri, body)
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	dropHops(out.Header)
	dropForged(out.Header)
	out.Header.Del("Content-Length")
	out.Header.Del("Expect")
	out.Host = r.Host
	return out, nil
}

// relay sends a node's answer to the client as it arrives.
func relay(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	dropHops(resp.Header)
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if !copyFlushing(w, resp.Body) {
		panic(http.ErrAbortHandler) // the answer must not look complete
	}
}

// copyFlushing reports whether all of it was read and written.
func copyFlushing(w http.ResponseWriter, from io.Reader) bool {
	rc, buf := http.NewResponseController(w), make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return false
			}
			_ = rc.Flush() // a recorder of a test has no flush
		}
		if err != nil {
			return err == io.EOF
		}
	}
}
