package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
)

// errNoSpill reports a request that cannot go to nodes without its snapshot.
var errNoSpill = errors.New("no other node can take the request")

const (
	mostPeers  = 16 // named to a node
	mostCopies = 2  // of a snapshot for one request
)

// spill asks for sandboxes on nodes without the snapshot, after the nodes with it have refused. Each copies the snapshot
// from those nodes first, with the rights of the client.
func (g *Gateway) spill(ctx context.Context, q question, sticky string, why error) (answer, error) {
	if q.want.Node != "" || !q.overflows || !noTaker(why) {
		return answer{}, errNoSpill
	}
	peers := peersFor(g, q.want.Snapshot)
	if len(peers) == 0 {
		return answer{}, errNoSpill
	}
	q.want.Holders, q.want.Others = false, true
	tries := 0
	q.prepare = func(ctx context.Context, n *nodes.Node) error {
		if tries++; tries > mostCopies {
			return &placement.Refusal{Kind: placement.Absent, Err: errNoSpill}
		}
		return copyTo(ctx, g, q.from, n, q.want.Snapshot, peers)
	}
	return g.claim(ctx, q, sticky, func(*refused) {})
}

// peersFor returns the URLs of the nodes with a snapshot. Draining nodes send it, too.
func peersFor(g *Gateway, tag string) (urls []string) {
	for _, n := range g.up() {
		if listed(n, tag) && len(urls) < mostPeers {
			urls = append(urls, n.URL.String())
		}
	}
	return urls
}

// copyTo lets a node copy a snapshot. Every failure is a refusal: no sandbox was made.
func copyTo(ctx context.Context, g *Gateway, from *http.Request, n *nodes.Node, tag string, peers []string) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CopyTime)
	defer cancel()
	refuse := func(kind placement.Kind, format string, args ...any) error {
		g.metrics.copies.WithLabelValues("failed").Inc()
		return &placement.Refusal{Kind: kind, Err: fmt.Errorf("copy snapshot %s: "+format, append([]any{tag}, args...)...)}
	}
	body, err := json.Marshal(api.CopySnapshotRequest{Peers: peers})
	if err != nil {
		return err
	}
	out, err := request(ctx, from, n, http.MethodPost, "/v1/snapshots/"+escape(tag)+"/copy", bytes.NewReader(body))
	if err != nil {
		return err
	}
	out.Header.Del("Idempotency-Key")
	out.Header.Set("Accept", "application/json")
	out.Header.Set("Content-Type", "application/json")
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		g.cfg.Log.Warn("a node has not copied a snapshot", "node", n.Name, "snapshot", tag, "error", err)
		return refuse(placement.Busy, "%w", err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	switch {
	case resp.StatusCode < 300:
		g.metrics.copies.WithLabelValues("copied").Inc()
		g.hints.set(tag, n.Name, hintTime)
		n.Look()
		return nil
	case resp.StatusCode == http.StatusConflict:
		return nil // it is there, or the fork gets the node's reason
	case resp.StatusCode == http.StatusInsufficientStorage:
		return refuse(placement.Busy, "%s", b)
	}
	return refuse(placement.Absent, "%s", b)
}

// short takes the failed children that lacked memory or another resource of their node out of a sum. It returns their
// indexes.
func (t *total) short() (indexes []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = slices.DeleteFunc(t.entries, func(c child) bool {
		if c.text("id") != "" || !slices.Contains(shortages, api.Code(c.text("code"))) {
			return false
		}
		indexes = append(indexes, c.index())
		return true
	})
	slices.Sort(indexes)
	return indexes
}

var shortages = []api.Code{api.CodeNoMemory, api.CodeNoResources, api.CodeNoSpace}

// rest asks other nodes for the children that lacked memory, as long as some of them are made.
func rest(g *Gateway, r *http.Request, s spreading, t *total) {
	for round := 0; round < 4 && r.Context().Err() == nil; round++ {
		entries, before := slices.Clone(t.entries), len(t.made)
		left := t.short()
		if len(left) == 0 {
			return
		}
		id := fmt.Sprintf("%s-r%d", s.id, round)
		want := wantOf(g, s.tag, id, len(left))
		body, err := sized(s.body, len(left))
		var a answer
		if err == nil {
			q := question{from: r, body: body, overflows: true, id: strings.TrimLeft(id[max(0, len(id)-255):], "-"), want: want}
			a, err = g.spill(r.Context(), q, "", &placement.NoNodeError{})
		}
		var silent *placement.UnknownError
		switch {
		case errors.As(err, &silent):
			err = failf(api.CodeTimeout, api.ReasonNodeSilent, "%v", silentText(silent))
		case err != nil:
			t.entries = entries // as the nodes have answered before
			return
		}
		take(g, a, err, s, t, left)
		if len(t.made) == before {
			return
		}
	}
}
