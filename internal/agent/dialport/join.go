package dialport

import (
	"io"
	"net"
	"sync"
)

// join passes bytes both ways until both have ended. The end of one direction is passed
// on as such: who has sent all of its request may still get its answer.
func join(a, b net.Conn) {
	var ways sync.WaitGroup
	ways.Go(func() { pass(a, b) })
	ways.Go(func() { pass(b, a) })
	ways.Wait()
}

// pass ends one direction, or both if the connections are broken.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err == nil {
		if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			return
		}
	}
	to.Close()
	from.Close()
}
