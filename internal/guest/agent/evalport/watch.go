package evalport

import (
	"bufio"
	"errors"
	"net"
	"os"
	"time"
)

// watchAfter is the time after which a watcher checks for the caller of a request. Most requests
// are answered by then and need no extra goroutine.
const watchAfter = 100 * time.Millisecond

// watcher detects that the caller of a request disconnects.
type watcher struct {
	conn  net.Conn
	timer *time.Timer
	done  chan struct{} // closed when look has returned
	gone  bool          // the caller is gone; read it after done
}

// watch starts to check after watchAfter. It calls left, at most once, if the caller disconnects.
// No other reader may use in until stop has returned.
func watch(c net.Conn, in *bufio.Reader, left func()) *watcher {
	w := &watcher{conn: c, done: make(chan struct{})}
	w.timer = time.AfterFunc(watchAfter, func() { w.look(in, left) })
	return w
}

// look waits for the caller's next byte or for the end of the connection. The byte belongs to the
// next request, so it stays in the buffer.
func (w *watcher) look(in *bufio.Reader, left func()) {
	defer close(w.done)
	if _, err := in.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.gone = true
		left()
	}
}

// stop ends the watch and reports whether the caller is still connected.
func (w *watcher) stop() bool {
	if w.timer.Stop() {
		return true
	}
	_ = w.conn.SetReadDeadline(time.Unix(1, 0)) // interrupts the read
	<-w.done
	_ = w.conn.SetReadDeadline(time.Time{})
	return !w.gone
}
