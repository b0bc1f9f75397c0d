package mcp

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/leaf/duplex"
)

// Limits of the forwarded ports of a session.
const (
	maxForwards    = 32
	maxConnections = 256 // at a time, for each port
)

// forwards are the ports of this host that lead to sandboxes.
type forwards struct {
	mu     sync.Mutex // guards the fields below
	of     map[target]net.Listener
	ended  bool
	served sync.WaitGroup
}

type target struct {
	id   string
	port uint16
}

// open listens on a free port. A port that is open already is returned again.
func (f *forwards) open(n *session, c *client.Client, id string, port uint16) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to := target{id, port}
	switch l := f.of[to]; {
	case f.ended:
		return "", context.Canceled
	case l != nil:
		return l.Addr().String(), nil
	case len(f.of) >= maxForwards:
		return "", &client.Error{Code: api.CodeQuota, Message: fmt.Sprintf("this session has exposed %d ports, which is "+
			"the limit", maxForwards)}
	}
	l, err := new(net.ListenConfig).Listen(n.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for port %d of %s: %w", port, id, err)
	}
	if f.of == nil {
		f.of = map[target]net.Listener{}
	}
	f.of[to] = l
	f.served.Go(func() { f.serve(n, c, l, to) })
	return l.Addr().String(), nil
}

func (f *forwards) serve(n *session, c *client.Client, l net.Listener, to target) {
	slots := make(chan struct{}, maxConnections)
	var open sync.WaitGroup
	defer open.Wait()
	for {
		here, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			here.Close()
			continue
		}
		open.Go(func() {
			defer func() { <-slots }()
			f.carry(n, c, here, to)
		})
	}
}

func (f *forwards) carry(n *session, c *client.Client, here net.Conn, to target) {
	defer here.Close()
	there, err := c.DialPort(n.ctx, to.id, to.port)
	if err != nil {
		n.opt.Log.Info("a connection to an exposed port failed", "sandbox", to.id, "port", to.port, "error", err)
		return
	}
	duplex.Join(n.ctx, here, there)
}

// close closes all ports and their connections. The session's context must have ended.
func (f *forwards) close() {
	f.mu.Lock()
	f.ended = true
	for _, l := range f.of {
		l.Close()
	}
	f.mu.Unlock()
	f.served.Wait()
}
