package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// A paused sandbox can move to another node, and keeps its id. The old node names the new one in an answer, and the
// gateway sends the request there. It remembers the node, as other gateways do after such an answer.

const (
	movedTime    = time.Hour
	mostHops     = 3        // of one request, which follows a sandbox that moves again
	mostReplayed = 16 << 10 // bytes of a body that is sent again
)

// toSandbox forwards to the node of a sandbox. A key of no node is like an unknown sandbox: any node answers so, after
// it has checked the client's credential.
func (g *Gateway) toSandbox(w *writer, r *http.Request, t target) {
	n, err := home(g, r, t)
	switch {
	case err != nil:
		g.refuse(w, r, failureOf(err))
		return
	case n == nil:
		g.toAny(w, r)
		return
	case n.Foreign():
		g.refuse(w, r, unreachable(n.Name))
		return
	case t.resumes:
		resume(g, w, r, t.id, n)
		return
	}
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/branch") {
		defer n.Look() // it has a new snapshot
	}
	h := &hop{id: t.id, request: r, body: &replay{from: r.Body}, guest: t.guest || t.port, port: t.port}
	if n, err = early(g, h, n); err != nil {
		g.refuse(w, r, failureOf(err))
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = h.body
	}
	g.forward(w, r.WithContext(context.WithValue(r.Context(), hopKey{}, h)), n)
}

// home returns the node of a sandbox, or nil.
func home(g *Gateway, r *http.Request, t target) (*nodes.Node, error) {
	if n := g.cfg.Nodes.ByName(g.moved.get(t.id)); n != nil {
		return n, nil
	}
	n := g.cfg.Nodes.ByKey(sandbox.NodeKeyIn(t.id))
	if n != nil && (n.Up() || n.Foreign()) || sandbox.NodeKeyIn(t.id) == "" || t.port {
		return n, nil
	}
	// Its node has left or does not answer. The sandbox may have moved before.
	if found, err := search(g, r, t.id); found != nil || err != nil {
		return found, err
	}
	return n, nil
}

// hop is a request about a sandbox on its way.
type hop struct {
	id      string
	request *http.Request
	body    *replay
	count   int
	// guest reports whether it needs the guest, port whether it is for a port.
	guest, port bool
	// woken reports that the gateway has tried to move the sandbox to resume it.
	woken bool
}

type hopKey struct{}

func hopOf(ctx context.Context) *hop {
	h, _ := ctx.Value(hopKey{}).(*hop)
	return h
}

// movedError ends the use of an answer that names another node.
type movedError struct{ to string }

func (e *movedError) Error() string { return "the sandbox was moved to node " + sandbox.Clip(e.to) }

// movedAnswer returns an error for the answer of a node about a sandbox that another node has taken, or has to take.
func movedAnswer(resp *http.Response) error {
	if to := resp.Header.Get(api.HeaderMovedTo); to != "" && hopOf(resp.Request.Context()) != nil {
		return &movedError{to}
	}
	return asleepAnswer(resp)
}

// follow sends a request to the node that has taken its sandbox.
func follow(g *Gateway, w http.ResponseWriter, h *hop, to string) {
	n := g.cfg.Nodes.ByName(to)
	h.count++
	switch {
	case n == nil || n.Foreign():
		g.refuse(w, h.request, unreachable(sandbox.Clip(to)))
		return
	case h.count > mostHops:
		g.refuse(w, h.request, failf(api.CodeBusy, "", "sandbox %s is moving between nodes", h.id))
		return
	}
	g.moved.set(h.id, n.Name, movedTime)
	body, ok := h.body.again()
	if !ok {
		g.refuse(w, h.request, failf(api.CodeBusy, "", "sandbox %s was moved to node %s during the request: repeat it",
			h.id, n.Name))
		return
	}
	again := h.request.WithContext(context.WithValue(h.request.Context(), hopKey{}, h))
	if body != nil {
		h.body = &replay{from: body}
		again.Body = h.body
	}
	g.forward(w, again, n)
}

// replay keeps a short body, so that it can be sent again.
type replay struct {
	from io.ReadCloser

	mu          sync.Mutex
	kept        []byte
	over, ended bool
	begun       bool // a part was read
	taken       bool // it is sent in another request
}

// Read implements io.Reader.
func (b *replay) Read(p []byte) (int, error) {
	if !b.begin() {
		return 0, errTaken
	}
	n, err := b.from.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = err == io.EOF; len(b.kept)+n > mostReplayed {
		b.over, b.kept = true, nil
	}
	if !b.over {
		b.kept = append(b.kept, p[:n]...)
	}
	return n, err
}

var errTaken = errors.New("the body goes to another node")

func (b *replay) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = b.begun || !b.taken
	return !b.taken
}

// Close implements io.Closer. A body of which no byte was read stays open: it can still be sent.
func (b *replay) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.begun {
		return nil
	}
	return b.from.Close()
}

// again returns the body if it was read to its end and is short, or if no byte of it was read. It is nil for a request
// without one.
func (b *replay) again() (io.ReadCloser, bool) {
	if b.from == nil || b.from == http.NoBody {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.begun {
		b.taken = true
		return b.from, true
	}
	return io.NopCloser(bytes.NewReader(b.kept)), b.ended && !b.over
}
