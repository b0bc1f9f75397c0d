package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
)

// errNoMove reports that no node takes a sandbox. The answer of its own node is the client's then.
var errNoMove = errors.New("no other node takes the sandbox")

// resume serves POST /v1/sandboxes/ID/resume, and E2B's connect and resume. If the node of the sandbox is being drained,
// or lacks memory or space, another node takes the sandbox first.
func resume(g *Gateway, w *writer, r *http.Request, id string, n *nodes.Node) {
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	a, err := atNode(g, r, id, n, body)
	if err != nil {
		g.refuse(w, r, failureOf(err))
		return
	}
	if a.StatusCode != http.StatusServiceUnavailable && a.StatusCode != http.StatusInsufficientStorage {
		relay(w, a.Response)
		return
	}
	kept := keptAnswer(a)
	if !movable(kept, body) {
		relay(w, kept.answer().Response)
		return
	}
	taken, err := move(g, r, id, a.node, body)
	switch {
	case err == nil:
		relay(w, taken.Response)
	case errors.As(err, new(failure)):
		g.refuse(w, r, failureOf(err))
	default:
		g.cfg.Log.Warn("no node takes a paused sandbox from its own", "sandbox", id, "node", a.node.Name, "error", err)
		relay(w, kept.answer().Response)
	}
}

// atNode sends a request about a sandbox to a node, and follows the sandbox to others.
func atNode(g *Gateway, r *http.Request, id string, n *nodes.Node, body []byte) (answer, error) {
	for range mostHops {
		out, err := request(r.Context(), r, n, r.Method, r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			return answer{}, err
		}
		resp, err := n.HTTP.RoundTrip(out)
		if err != nil {
			g.cfg.Log.Warn("request to a node failed", "node", n.Name, "error", err)
			return answer{}, unreachable(n.Name)
		}
		to := g.cfg.Nodes.ByName(resp.Header.Get(api.HeaderMovedTo))
		if to == nil || to == n || to.Foreign() {
			return answer{resp, n}, nil
		}
		_ = resp.Body.Close()
		g.moved.set(id, to.Name, movedTime)
		n = to
	}
	return answer{}, failf(api.CodeBusy, "", "sandbox %s is moving between nodes", id)
}

// movable reports whether another node can help a client whose resume was refused. Clients that name peers choose for
// themselves.
func movable(a *refused, body []byte) bool {
	var e api.Error
	var asked api.ResumeRequest
	_ = json.Unmarshal(body, &asked) // the node has judged it
	_ = json.Unmarshal(a.body, &e)   // E2B's errors have other fields
	if len(asked.Peers) > 0 || e.Reason == api.ReasonSandboxUnsettled {
		return false
	}
	code := api.Code(a.header.Get(api.HeaderError))
	return code == api.CodeDraining || slices.Contains(shortages, code)
}

// move lets another node take a paused sandbox and resume it. It returns that node's answer, a failure for the client,
// or another error if the sandbox is where it was.
func move(g *Gateway, r *http.Request, id string, from *nodes.Node, body []byte) (a answer, err error) {
	tries := 0
	_, err = g.cfg.Board.Place(r.Context(), wantOf(g, "", newID(), 1), func(ctx context.Context, name string) error {
		n := g.cfg.Nodes.ByName(name)
		switch {
		case n == nil || n == from || n.Foreign():
			return &placement.Refusal{Kind: placement.Absent, Err: errNoMove}
		case tries >= mostCopies:
			return errNoMove
		}
		tries++
		a, err = takeAt(ctx, g, r, id, from, n, body)
		return err
	})
	result := "moved"
	if err != nil {
		result = "failed"
	}
	g.metrics.moves.WithLabelValues(result).Inc()
	return a, err
}

// takeAt asks one node to take a sandbox and to resume it.
func takeAt(ctx context.Context, g *Gateway, r *http.Request, id string, from, n *nodes.Node,
	body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CopyTime)
	native, err := strings.HasPrefix(r.URL.Path, "/v1/"), error(nil)
	if native {
		body, err = json.Marshal(api.ResumeRequest{Peers: []string{from.URL.String()}})
	}
	var out *http.Request
	if err == nil {
		out, err = request(ctx, r, n, r.Method, r.URL.RequestURI(), bytes.NewReader(body))
	}
	if err != nil {
		cancel()
		return answer{}, err
	}
	out.Header.Del(api.HeaderPeers)
	if native {
		out.Header.Set("Content-Type", "application/json")
	} else {
		out.Header.Set(api.HeaderPeers, from.URL.String())
	}
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		cancel()
		g.cfg.Log.Warn("no answer from a node", "node", n.Name, "sandbox", id, "error", err)
		return answer{}, failf(api.CodeTimeout, api.ReasonNodeSilent,
			"node %s sent no answer: it may have taken sandbox %s; repeat the request", n.Name, id)
	}
	resp.Body = ending{resp.Body, cancel}
	if resp.StatusCode < 300 {
		g.moved.set(id, n.Name, movedTime)
		from.Look()
		n.Look()
		return answer{resp, n}, nil
	}
	kept := keptAnswer(answer{resp, n})
	var e api.Error
	_ = json.Unmarshal(kept.body, &e)
	switch {
	case e.Reason == api.ReasonSandboxUnsettled:
		return answer{}, failf(e.Code, e.Reason, "%s", e.Message)
	case e.Reason == api.ReasonSandboxBound:
		return answer{}, errNoMove // another node would say so, too
	}
	return answer{}, &placement.Refusal{Kind: placement.Busy, Err: fmt.Errorf("%w: %s", errNoMove, e.Message)}
}
