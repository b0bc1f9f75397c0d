package listen

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/sys/peercred"
)

// connLimiter holds the connections of one listener. It limits the number of connections that make the
// daemon wait: for the end of a header, for the next request, or for the rest of a refused body. If
// there are too many, it closes the one that has waited longest, so that new connections are
// accepted. Connections with a request in a handler do not count, because those clients were
// authenticated.
type connLimiter struct {
	most int

	mu    sync.Mutex // guards the fields below, and the state of all conns in it
	conns map[*Conn]struct{}
}

// standing is the state of a connection.
type standing int

const (
	fresh    standing = iota // has not sent a whole header yet
	draining                 // was refused, and its body is read and discarded
	idle                     // may send another request
	busy                     // a handler works on its request
)

// limitedListener accepts connections for its limiter.
type limitedListener struct {
	net.Listener
	connLimiter *connLimiter
}

func newConnLimiter(l net.Listener, most int) *limitedListener {
	return &limitedListener{l, &connLimiter{most: most, conns: map[*Conn]struct{}{}}}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.connLimiter.add(c), nil
}

func (cr *connLimiter) add(c net.Conn) *Conn {
	added := &Conn{Conn: c, connLimiter: cr, since: time.Now()}
	cr.mu.Lock()
	cr.conns[added] = struct{}{}
	goner := cr.goner()
	delete(cr.conns, goner) // close it only once
	cr.mu.Unlock()
	if goner != nil {
		goner.Conn.Close() // its server sees the close, and ends the connection
	}
	return added
}

// goner returns the connection to close if too many connections wait.
func (cr *connLimiter) goner() *Conn {
	var first *Conn
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

func (cr *connLimiter) remove(c *Conn) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	delete(cr.conns, c)
}

// changed is the server's hook for state changes of its connections.
func (cr *connLimiter) changed(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*Conn)
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

// now sets the state of a connection. c is nil if the connection came from another listener.
func (c *Conn) now(does standing) {
	if c == nil {
		return
	}
	c.connLimiter.mu.Lock()
	defer c.connLimiter.mu.Unlock()
	c.does, c.since = does, time.Now()
}

// connKey is the context key for the connection of a request.
type connKey struct{}

// withConn returns the server's hook for the context of a connection's requests. group is the group to look for in
// the peers of Unix sockets; nil: none.
func withConn(group *uint32) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, nc net.Conn) context.Context {
		if c, ok := nc.(*Conn); ok {
			ctx, nc = context.WithValue(ctx, connKey{}, c), c.Conn
		}
		if p, ok := peercred.Of(nc, group); ok {
			ctx = auth.WithPeer(ctx, p)
		}
		return ctx
	}
}

// ConnOf returns the connection of a request's context. It returns nil if the connection came from another listener.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}
