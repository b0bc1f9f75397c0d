package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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
	mostSearches   = 4                // at once
	mostOfAddress  = mostSearches - 1 // for one address
	mostUnproven   = 2                // for one address, with credentials that no node has accepted yet
	mostWaiting    = 64               // searches of one client that run or wait
	mostChecks     = 3                // nodes asked about a credential
	searchWait     = 2 * time.Second  // for a turn
	missTime       = 5 * time.Second  // no second search for the same sandbox
	provenTime     = 10 * time.Minute // of a credential that a node has accepted
	refusedByNodes = "refused"        // stands for all ids of a refused credential
)

// searches bounds searches.
type searches struct {
	turns   chan struct{}
	lanes   lanes
	flights singleflight.Group
	misses  hints // searches that found no sandbox
	proven  hints // credentials that a node has accepted
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
	s, address := &g.searches, addressOf(r.RemoteAddr)
	limits := []limit{{"c" + client, 1}, {"a" + address, mostOfAddress}}
	proven := s.proven.get(client) != ""
	if !proven {
		limits = slices.Insert(limits, 1, limit{"u" + address, mostUnproven})
	}
	wait, stop := context.WithTimeout(r.Context(), searchWait)
	defer stop()
	leave, ok := s.lanes.enter(wait, limits)
	defer leave()
	if ok {
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-wait.Done():
			ok = false
		}
	}
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
		s.proven.set(client, "-", provenTime)
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

// credentialOf returns the digest of a client's credential.
func credentialOf(r *http.Request) string {
	sum := sha256.New()
	for _, part := range []string{r.Header.Get("Authorization"), r.Header.Get(api.HeaderKey)} {
		fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return string(sum.Sum(nil))
}

// addressOf returns the address of a client. A client of IPv6 has a whole block of addresses.
func addressOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return strings.Clone(remote[:min(len(remote), 64)])
	}
	if a := at.Addr().Unmap(); a.Is4() {
		return a.String()
	}
	block, _ := at.Addr().WithZone("").Prefix(64)
	return block.String()
}

// limit is the number of searches at once under a name.
type limit struct {
	name string
	most int
}

// lanes count the searches of clients. A lane exists as long as a search is in it.
type lanes struct {
	mu sync.Mutex
	at map[string]*lane
}

type lane struct {
	turns chan struct{}
	users int // running and waiting
}

// enter waits for a turn in each lane, in the order of the list. The caller calls leave in any case.
func (l *lanes) enter(ctx context.Context, limits []limit) (leave func(), ok bool) {
	var undo []func()
	leave = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	for _, lim := range limits {
		in := l.join(lim)
		if in == nil {
			return leave, false
		}
		undo = append(undo, func() { l.part(lim.name) })
		select {
		case in.turns <- struct{}{}:
			undo = append(undo, func() { <-in.turns })
		case <-ctx.Done():
			return leave, false
		}
	}
	return leave, true
}

// join returns nil if too many searches wait already.
func (l *lanes) join(lim limit) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[string]*lane{}
	}
	in := l.at[lim.name]
	if in == nil {
		in = &lane{turns: make(chan struct{}, lim.most)}
		l.at[lim.name] = in
	}
	if in.users >= mostWaiting {
		return nil
	}
	in.users++
	return in
}

func (l *lanes) part(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.at[name]; in.users > 1 {
		in.users--
		return
	}
	delete(l.at, name)
}
