package evalport

import (
	"bufio"
	"errors"
	"net"
	"os"
	"time"
)

// watchAfter is how long a request takes before somebody looks whether its caller is still there. Most are answered
// by then, and need no goroutine that waits beside them.
const watchAfter = 100 * time.Millisecond

// watcher notices that the caller of a request leaves.
type watcher struct {
	conn  net.Conn
	timer *time.Timer
	done  chan struct{} // closed when look has returned
	gone  bool          // the caller is; read it after done
}

// watch begins to look after a while. left is called, at most once, if the caller leaves. Nobody else reads until
// stop has returned.
func watch(c net.Conn, in *bufio.Reader, left func()) *watcher {
	w := &watcher{conn: c, done: make(chan struct{})}
	w.timer = time.AfterFunc(watchAfter, func() { w.look(in, left) })
	return w
}

// look waits for the caller's next byte or end. A byte is of its next request, and stays where it is.
func (w *watcher) look(in *bufio.Reader, left func()) {
	defer close(w.done)
	if _, err := in.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.gone = true
		left()
	}
}

// stop ends the watch and reports whether the caller is there.
func (w *watcher) stop() bool {
	if w.timer.Stop() {
		return true
	}
	_ = w.conn.SetReadDeadline(time.Unix(1, 0)) // breaks the read off
	<-w.done
	_ = w.conn.SetReadDeadline(time.Time{})
	return !w.gone
}
