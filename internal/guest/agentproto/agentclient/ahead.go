package agentclient

import (
	"context"
	"net"
	"sync/atomic"
)

// ahead holds a connection dialed before it is needed. The zero value holds no connection.
type ahead struct{ pending atomic.Pointer[pendingDial] }

// pendingDial delivers the result of a dial once. The connection is nil if the dial failed.
type pendingDial chan net.Conn

// begin dials in the background. The new connection replaces an unused one. ctx cancels the dial.
func (a *ahead) begin(ctx context.Context, dial DialFunc) {
	p := make(pendingDial, 1)
	a.pending.Swap(&p).drop()
	go func() {
		conn, err := dial(ctx)
		if err != nil {
			conn = nil
		}
		p <- conn
	}()
}

// dial waits for the connection from begin. It dials itself if there is no such connection or its
// dial failed.
func (a *ahead) dial(ctx context.Context, dial DialFunc) (net.Conn, error) {
	p := a.pending.Swap(nil)
	if p == nil {
		return dial(ctx)
	}
	select {
	case conn := <-*p:
		if conn == nil {
			return dial(ctx)
		}
		return conn, nil
	case <-ctx.Done():
		p.drop()
		return nil, context.Cause(ctx)
	}
}

// drop closes an unused connection.
func (a *ahead) drop() { a.pending.Swap(nil).drop() }

func (p *pendingDial) drop() {
	if p == nil {
		return
	}
	go func() {
		if conn := <-*p; conn != nil {
			conn.Close()
		}
	}()
}
