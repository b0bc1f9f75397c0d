// Package duplex joins two connections: bytes go both ways, and the end of one direction is
// passed on as such, so that who has sent all of its request still gets its answer. It owns
// the connections until Join returns. The trap: two ends that both stay open and silent are
// joined for good; whoever calls it has a context that ends them.
package duplex

import (
	"context"
	"io"
	"net"
	"sync"
)

// Join passes bytes both ways until both have ended, one has failed, or ctx has ended, and
// closes both connections.
func Join(ctx context.Context, a, b net.Conn) {
	cut := func() {
		a.Close()
		b.Close()
	}
	defer cut()
	defer context.AfterFunc(ctx, cut)()
	pass := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
			cut()
		}
	}
	var ways sync.WaitGroup
	ways.Go(func() { pass(a, b) })
	ways.Go(func() { pass(b, a) })
	ways.Wait()
}

// closeWrite ends both directions of a connection that cannot end one.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
