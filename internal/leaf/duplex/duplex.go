// Package duplex joins two connections. It copies bytes in both directions and passes on the end of one direction
// alone, so that a client that has sent its whole request still gets the answer. It owns the connections until
// Join returns. Beware: two ends that stay open and silent are joined forever; the caller needs a context to end
// them.
package duplex

import (
	"context"
	"io"
	"net"
	"sync"
)

// Join copies bytes in both directions until both have ended, one has failed, or ctx has ended. Then it closes
// both connections.
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

// closeWrite ends the write direction. It closes the connection if that cannot end one direction alone.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
