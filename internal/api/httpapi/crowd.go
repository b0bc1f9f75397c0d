package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// crowd is the connections of one listener. It bounds those that keep the daemon
// waiting, whatever they wait with: a header that does not end, a next request that
// does not come, a refused body that goes on. When there are too many, the one that
// has waited longest has to go, so that whoever knocks next gets in. Requests that
// a handler works on are not counted: their clients have shown who they are.
type crowd struct {
	most int

	mu    sync.Mutex // guards what follows, and the state of all conns in it
	conns map[*conn]struct{}
}

// standing is what a connection does.
type standing int

const (
	fresh    standing = iota // has not sent a whole header yet
	draining                 // was refused, and its body is read to be thrown away
	idle                     // may send another request
	busy                     // a handler works on its request
)

// crowdListener hands out connections of its crowd.
type crowdListener struct {
	net.Listener
	crowd *crowd
}

func newCrowd(l net.Listener, most int) *crowdListener {
	return &crowdListener{l, &crowd{most: most, conns: map[*conn]struct{}{}}}
}

func (l *crowdListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.crowd.add(c), nil
}

func (cr *crowd) add(c net.Conn) *conn {
	added := &conn{Conn: c, crowd: cr, since: time.Now()}
	cr.mu.Lock()
	cr.conns[added] = struct{}{}
	goner := cr.goner()
	delete(cr.conns, goner) // once is enough
	cr.mu.Unlock()
	if goner != nil {
		goner.Conn.Close() // its server sees that, and ends it
	}
	return added
}

// goner is the connection that has to go, if there are too many that wait.
func (cr *crowd) goner() *conn {
	var first *conn
	waiting := 0
	for c := range cr.conns {
		if c.does == busy {
			continue
		}
		waiting++
		if first == nil || c.since.Before(first.since) {
			first = c
		}
	}
	if waiting <= cr.most {
		return nil
	}
	return first
}

func (cr *crowd) remove(c *conn) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	delete(cr.conns, c)
}

// changed is the server's hook for what its connections do.
func (cr *crowd) changed(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		c.handled.Store(false)
		c.got.Store(0)
		c.rest.Store(nil)
		c.now(idle)
	case http.StateActive, http.StateHijacked:
		c.now(busy)
	case http.StateClosed:
		cr.remove(c)
	}
}

// now sets what a connection does; nil stands for one that no listener of ours made.
func (c *conn) now(does standing) {
	if c == nil {
		return
	}
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	c.does, c.since = does, time.Now()
}

// connKey is where a request's context has its connection.
type connKey struct{}

// withConn is the server's hook for the context of a connection's requests.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	if c, ok := nc.(*conn); ok {
		ctx, nc = context.WithValue(ctx, connKey{}, c), c.Conn
	}
	return withPeer(ctx, nc)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}
