package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
)

// shares are the requests of a queue at once.
type shares struct {
	all      int           // of all clients
	address  int           // of one address
	client   int           // of one credential
	unproven int           // of one address, with credentials that no node has accepted yet
	waiting  int           // of one address or credential, those that run included
	wait     time.Duration // for a turn
}

// queue gives turns to requests that make work at many nodes. A client waits for its own requests, not for those of
// other credentials and addresses: one address never has all turns.
type queue struct {
	shares shares
	turns  chan struct{} // one element per turn
	lanes  lanes
}

func newQueue(s shares) queue {
	return queue{shares: s, turns: make(chan struct{}, s.all), lanes: lanes{waiting: s.waiting}}
}

// enter waits for the turn of a request. client is its credentialOf. The caller calls leave in any case.
func (q *queue) enter(r *http.Request, client string, proven bool) (leave func(), ok bool) {
	address := addressOf(r.RemoteAddr)
	limits := []limit{{"c" + client, q.shares.client}, {"a" + address, q.shares.address}}
	if !proven {
		limits = slices.Insert(limits, 1, limit{"u" + address, q.shares.unproven})
	}
	wait, stop := context.WithTimeout(r.Context(), q.shares.wait)
	defer stop()
	leave, ok = q.lanes.enter(wait, limits)
	if !ok {
		return leave, false
	}
	select {
	case q.turns <- struct{}{}:
		part := leave
		return func() {
			<-q.turns
			part()
		}, true
	case <-wait.Done():
		return leave, false
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

// limit is the number of turns at once under a name.
type limit struct {
	name string
	most int
}

// lanes count the requests of clients. A lane exists as long as a request is in it.
type lanes struct {
	waiting int // in one lane, those with a turn included

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

// join returns nil if too many requests wait already.
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
	if in.users >= l.waiting {
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
