package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

const (
	// together is the number of nodes asked at the same time for one object.
	together = 16
	// strangers is the number of nodes asked for a snapshot that is not in their facts. A new snapshot is in the facts
	// after the next poll only.
	strangers = 8
)

// object forwards a request about a named object to the first node that has it.
func (g *Gateway) object(w *writer, r *http.Request, t target) {
	candidates, hidden := g.candidates(t.tag)
	has, missing, err := lookUp(g, r, candidates, t.probe, t.other)
	if err != nil {
		g.refuse(w, r, failureOf(err))
		return
	}
	missing = append(missing, hidden...)
	tellMissing(w, missing)
	switch {
	case len(has) == 0 && len(hidden) > 0:
		g.refuse(w, r, unreachable(hidden[0].Name))
	case len(has) == 0:
		g.toAny(w, r) // it answers as a single daemon would
	case r.Method == http.MethodDelete && t.tag != "" && len(has) > 1 && len(segments(r.URL)) == 3:
		g.deleteAll(w, r, has)
	default:
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			defer has[0].Look()
		}
		g.forward(w, r, has[0])
	}
}

// candidates returns the nodes that may have a snapshot, those with its tag in their facts first. hidden are nodes that
// had it and do not answer. Without a tag, all nodes that answer are candidates.
func (g *Gateway) candidates(tag string) (ask, hidden []*nodes.Node) {
	var others []*nodes.Node
	hint := g.hints.get(tag)
	for _, n := range g.cfg.Nodes.All() {
		lists := tag != "" && listed(n, tag)
		switch {
		case !n.Up() && lists:
			hidden = append(hidden, n)
		case !n.Up():
		case lists || n.Name == hint:
			ask = append(ask, n)
		default:
			others = append(others, n)
		}
	}
	if tag != "" {
		others = others[:min(len(others), strangers)]
	}
	return append(ask, others...), hidden
}

// listed reports whether a tag is in a node's facts, also as a tenant's own name for it.
func listed(n *nodes.Node, tag string) bool {
	facts, _ := n.Facts()
	for _, s := range facts.Snapshots {
		if s.Tag == tag || s.Owner != "" && s.Tag == s.Owner+"-"+tag {
			return true
		}
	}
	return false
}

// holders returns the nodes of a list that have an object for the client, in the list's order. Every answer except 404
// counts: the node then tells the client what is wrong. missing are nodes without an answer.
func (g *Gateway) holders(r *http.Request, list []*nodes.Node, probe string) (has, missing []*nodes.Node) {
	for len(list) > 0 {
		some := list[:min(len(list), together)]
		list = list[len(some):]
		found := make([]int, len(some))
		var asks sync.WaitGroup
		for i, n := range some {
			asks.Go(func() { found[i] = g.probe(r, n, probe) })
		}
		asks.Wait()
		for i, status := range found {
			switch status {
			case 0:
				missing = append(missing, some[i])
			case http.StatusNotFound:
			default:
				has = append(has, some[i])
			}
		}
	}
	return has, missing
}

// probe returns the status of a GET with the client's credential, or 0.
func (g *Gateway) probe(r *http.Request, n *nodes.Node, path string) int {
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.ListTime)
	defer cancel()
	out, err := request(ctx, r, n, http.MethodGet, path, nil)
	if err != nil {
		return 0
	}
	for _, name := range []string{"Accept", "Content-Type", "Range", "If-None-Match"} {
		out.Header.Del(name)
	}
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	return resp.StatusCode
}

// deleteAll deletes copies of a snapshot on all nodes. It returns the first answer that is no success.
func (g *Gateway) deleteAll(w *writer, r *http.Request, has []*nodes.Node) {
	for i, n := range has {
		out, err := request(r.Context(), r, n, r.Method, r.URL.RequestURI(), nil)
		var resp *http.Response
		if err == nil {
			resp, err = n.HTTP.RoundTrip(out)
		}
		n.Look()
		if err != nil {
			g.cfg.Log.Warn("request to a node failed", "node", n.Name, "error", err)
			f := unreachable(n.Name)
			f.text += "; copies on other nodes may be deleted already"
			g.refuse(w, r, f)
			return
		}
		if i == len(has)-1 || resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
			relay(w, resp)
			return
		}
		_ = resp.Body.Close()
	}
}

// headerMissing lists the keys of nodes that are missing in an answer.
const headerMissing = "Forkd-Nodes-Missing"

func tellMissing(w http.ResponseWriter, missing []*nodes.Node) {
	if len(missing) == 0 {
		return
	}
	var keys []string
	for _, n := range missing[:min(len(missing), 100)] {
		keys = append(keys, string(n.Key()))
	}
	w.Header().Set(headerMissing, strings.Join(keys, ","))
}

// keep forwards a comparison to the node of its sandboxes. All of them have to be on one node.
func (g *Gateway) keep(w *writer, r *http.Request) {
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	var req struct {
		IDs []string `json:"ids"`
		Of  string   `json:"of"`
	}
	restore(r, body)
	if !parse(body, &req) {
		g.toAny(w, r) // it says what is wrong
		return
	}
	n, err := commonNode(g, append(req.IDs, req.Of))
	switch {
	case err != nil:
		g.refuse(w, r, failureOf(err))
	case n != nil:
		g.forward(w, r, n)
	case req.Of != "":
		g.object(w, r, target{tag: req.Of, probe: infoOf(req.Of)})
	default:
		g.toAny(w, r)
	}
}

// commonNode returns the node of all ids, or nil if they have no node.
func commonNode(g *Gateway, ids []string) (*nodes.Node, error) {
	var node *nodes.Node
	for _, id := range ids {
		n := g.cfg.Nodes.ByKey(keyIn(id))
		if n != nil && node != nil && n != node {
			return nil, failf(api.CodeInvalid, "", "the sandboxes are on several nodes: compare those with the same "+
				"last five digits of their ids")
		}
		if n != nil {
			node = n
		}
	}
	return node, nil
}
