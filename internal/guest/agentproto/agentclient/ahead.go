package agentclient

import (
	"context"
	"net"
	"sync/atomic"
)

// ahead is a connection whose opening has begun before it is needed, or none. The zero value has none.
type ahead struct{ pending atomic.Pointer[pendingDial] }

// pendingDial gives what became of a dial, once: nil if it failed.
type pendingDial chan net.Conn

// begin opens a connection in the background, in place of one that nobody has used. ctx ends it.
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

// dial waits for the connection that was begun, and opens one if there is none or it failed.
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

// drop closes the connection if nobody has used it.
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
