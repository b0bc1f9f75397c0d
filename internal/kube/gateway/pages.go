package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/nodes"
)

const (
	headerNext = "X-Next-Token"
	// maxPage limits one page of a node, in bytes.
	maxPage = 8 << 20
)

// pages serves E2B's lists with pages, node after node. The token of a page is the key of a node, a dot, and the node's
// own token. The order is by time within a node only.
func (g *Gateway) pages(w *writer, r *http.Request) {
	up := g.up()
	key, token, _ := strings.Cut(r.URL.Query().Get("nextToken"), ".")
	if key != "" {
		for len(up) > 0 && string(up[0].Key()) != key {
			up = up[1:]
		}
		if len(up) == 0 {
			if g.cfg.Nodes.ByKey(sandbox.NodeKey(key)) != nil {
				g.refuse(w, r, failf(api.CodeGuestGone, api.ReasonNodeUnreachable, "the node of the next page does not answer"))
				return
			}
			g.refuse(w, r, failf(api.CodeInvalid, "", "nextToken: want the header %s of the page before", headerNext))
			return
		}
	}
	if key == "" {
		tellMissing(w, down(g.cfg.Nodes.All()))
	}
	for i, n := range up {
		resp, err := pageOf(g, r, n, token)
		if err != nil {
			g.cfg.Log.Warn("a node has no page", "node", n.Name, "error", err)
			g.refuse(w, r, unreachable(n.Name))
			return
		}
		next := resp.Header.Get(headerNext)
		resp.Header.Del(headerNext)
		switch {
		case next != "":
			resp.Header.Set(headerNext, string(n.Key())+"."+next)
		case i+1 < len(up):
			resp.Header.Set(headerNext, string(up[i+1].Key())+".")
		}
		if token = ""; resp.ContentLength <= 3 && resp.StatusCode == http.StatusOK && next == "" && i+1 < len(up) {
			continue // an empty page, which clients may take for the end
		}
		relay(w, resp)
		return
	}
	g.refuse(w, r, failf(api.CodeNoResources, api.ReasonNoNode, "no node of the cluster answers"))
}

func down(all []*nodes.Node) (missing []*nodes.Node) {
	for _, n := range all {
		if !n.Up() {
			missing = append(missing, n)
		}
	}
	return missing
}

// pageOf returns a node's page, read to its end.
func pageOf(g *Gateway, r *http.Request, n *nodes.Node, token string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.ListTime+10*time.Second)
	defer cancel()
	q := r.URL.Query()
	q.Del("nextToken")
	if token != "" {
		q.Set("nextToken", token)
	}
	uri := r.URL.EscapedPath()
	if len(q) > 0 {
		uri += "?" + q.Encode()
	}
	out, err := request(ctx, r, n, http.MethodGet, uri, nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	body = bytes.TrimSpace(body)
	resp.Header.Del("Content-Length")
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}
