package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// A search asks all nodes for a sandbox whose node has left or does not answer. Any client can write any id and any
// credential, so searches have limits: one at a time for a credential, and never all turns for one address. A credential
// that a node refuses costs one question to one node.
const (
	mostChecks     = 3                // nodes asked about a credential
	missTime       = 5 * time.Second  // no second search for the same sandbox
	provenTime     = 10 * time.Minute // of a credential that a node has accepted
	refusedByNodes = "refused"        // stands for all ids of a refused credential
)

// searchShares are the limits of searches.
var searchShares = shares{all: 4, address: 3, client: 1, unproven: 2, waiting: 64, wait: 2 * time.Second}

// searches bounds searches.
type searches struct {
	queue   queue
	flights singleflight.Group
	misses  hints // searches that found no sandbox
}

// search asks all nodes for a sandbox, with the client's credential. It returns nil if no node has it. The sandbox of a
// request to a port is not searched for: a credential there is the guest's. Equal searches share one.
func search(g *Gateway, r *http.Request, id string) (*nodes.Node, error) {
	if r.Header.Get("Authorization")+r.Header.Get(api.HeaderKey) == "" {
		return nil, nil
	}
	s, client := &g.searches, credentialOf(r)
	if s.misses.get(client+refusedByNodes) != "" || s.misses.get(client+id) != "" {
		g.metrics.searches.WithLabelValues("remembered").Inc()
		return nil, nil
	}
	// Others may wait for the same search when this client has left.
	left := r.Context()
	r = r.Clone(context.WithoutCancel(left))
	r.Body = nil
	flight := s.flights.DoChan(client+id, func() (any, error) {
		n, err := searchInTurn(g, r, client, id)
		g.metrics.searches.WithLabelValues(searchResult(n, err)).Inc()
		return n, err
	})
	select {
	case result := <-flight:
		n, _ := result.Val.(*nodes.Node)
		return n, result.Err
	case <-left.Done():
		return nil, failf(api.CodeBusy, "", "the client has left")
	}
}

func searchResult(n *nodes.Node, err error) string {
	switch {
	case err != nil:
		return "busy"
	case n == nil:
		return "missing"
	}
	return "found"
}

// searchInTurn waits for the turn of a client, and searches.
func searchInTurn(g *Gateway, r *http.Request, client, id string) (*nodes.Node, error) {
	s, proven := &g.searches, g.proven.get(client) != ""
	leave, ok := s.queue.enter(r, client, proven)
	defer leave()
	if !ok {
		return nil, failf(api.CodeBusy, "", "the node of sandbox %s does not answer, and the gateway has no turn to look "+
			"for it at other nodes: repeat the request", id)
	}
	if s.misses.get(client+refusedByNodes) != "" {
		return nil, nil // while it waited
	}
	return searchNow(g, r, client, id, proven), nil
}

// searchNow searches within the time of a list.
func searchNow(g *Gateway, r *http.Request, client, id string, proven bool) *nodes.Node {
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.ListTime)
	defer cancel()
	s, list := &g.searches, g.up()
	has := func(ctx context.Context, n *nodes.Node) int {
		return g.probe(r.WithContext(ctx), n, "/v1/sandboxes/"+escape(id))
	}
	// #nosec G404 -- no secret
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var found *nodes.Node
	for checks := 0; !proven && checks < mostChecks && len(list) > 0; checks++ {
		n := list[0]
		list = list[1:]
		switch has(ctx, n) {
		case http.StatusOK:
			found, proven = n, true
		case http.StatusNotFound:
			proven = true
		case http.StatusUnauthorized, http.StatusForbidden:
			s.misses.set(client+refusedByNodes, "-", missTime) // all nodes have the same keys
			return nil
		}
	}
	if proven {
		g.proven.set(client, "-", provenTime)
	}
	if found == nil && proven {
		found = firstWith(ctx, list, has)
	}
	if found == nil {
		s.misses.set(client+id, "-", missTime)
		return nil
	}
	g.moved.set(id, found.Name, movedTime)
	return found
}

// firstWith returns the first node that answers 200. It asks several at the same time.
func firstWith(ctx context.Context, list []*nodes.Node, ask func(context.Context, *nodes.Node) int) *nodes.Node {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	next, found := make(chan *nodes.Node), make(chan *nodes.Node, 1)
	var asks sync.WaitGroup
	for range min(len(list), together) {
		asks.Go(func() {
			for n := range next {
				if ctx.Err() == nil && ask(ctx, n) == http.StatusOK {
					select {
					case found <- n:
					default: // another has it, too
					}
					stop()
				}
			}
		})
	}
	for _, n := range list {
		next <- n
	}
	close(next)
	asks.Wait()
	select {
	case n := <-found:
		return n
	default:
		return nil
	}
}
