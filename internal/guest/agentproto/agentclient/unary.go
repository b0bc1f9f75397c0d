package agentclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// maxHeaderBytes bounds a response's header: one guest's garbage must not fill the host's memory.
const maxHeaderBytes = 64 << 10

// idleTime is how long a connection without a request is kept.
const idleTime = time.Minute

// unary asks what has one message each way, on the
// goroutine of its caller: one write and mostly one read. http.Transport has two goroutines
// for each connection, and two hand-overs between them and the caller for each request,
// which are a good part of the daemon's share of an eval. It keeps one connection; requests
// at the same time have more, which are closed.
type unary struct {
	dial  DialFunc
	ask   exchange
	ahead ahead

	mu   sync.Mutex // guards what follows; held for moments
	idle *link      // carries no request; nil: there is none
}

// exchange sends a request on a connection and receives its answer; keep says that the connection can be
// used again. Its errors have Connect's codes.
type exchange func(ctx context.Context, l *link, in, out proto.Message) (keep bool, err error)

// unreached is the error of a request for which there was no connection: it was not sent.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// link is one connection. One request at a time uses it.
type link struct {
	conn  net.Conn
	asks  asking           // over conn
	limit io.LimitedReader // over asks
	in    *bufio.Reader    // over limit
	out   bytes.Buffer
	close *time.Timer // while it is idle
}

// asking reads what may be kept.
type asking struct {
	io.Reader
	keep func(n int) int // of the request under way; may be nil
}

func (a *asking) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 && a.keep != nil && a.keep(n) < n {
		return 0, ErrNoRoom
	}
	return n, err
}

// call asks, and decodes the answer into out. Its errors have Connect's codes. keep says of n bytes of the answer how
// many may be kept: it fails with ErrNoRoom if that are fewer. It may be nil.
func (u *unary) call(ctx context.Context, in, out proto.Message, keep func(n int) int) error {
	l, err := u.take(ctx)
	if err != nil {
		return unreached{broken(ctx, err)}
	}
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	l.asks.keep = keep
	again, err := u.ask(ctx, l, in, out)
	l.asks.keep = nil
	if stop() && again {
		u.put(l)
	} else {
		l.conn.Close()
	}
	return err
}

// broken is the error of a connection that did not hold, or of a caller that did not wait.
func broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	return connect.NewError(codeOf(err), err)
}

// take is the idle connection, or a new one.
func (u *unary) take(ctx context.Context) (*link, error) {
	u.mu.Lock()
	l := u.idle
	u.idle = nil
	u.mu.Unlock()
	if l != nil {
		if l.close.Stop() && l.quiet() {
			return l, nil
		}
		l.conn.Close()
	}
	conn, err := u.ahead.dial(ctx, u.dial)
	if err != nil {
		return nil, err
	}
	l = &link{conn: conn}
	l.asks.Reader = conn
	l.limit.R = &l.asks
	l.in = bufio.NewReaderSize(&l.limit, 4096)
	return l, nil
}

// dialAhead begins to open a connection, if there is none that can be used again; ctx ends that.
func (u *unary) dialAhead(ctx context.Context) {
	u.mu.Lock()
	idle := u.idle != nil
	u.mu.Unlock()
	if !idle {
		u.ahead.begin(ctx, u.dial)
	}
}

// close closes what carries no request.
func (u *unary) close() {
	u.ahead.drop()
	u.closeIdle()
}

// quiet tells a connection that can be used again from one that the agent has closed, or
// on which it says something that nobody asked for. A request must not be sent to find
// out: it could not be told whether it was carried out.
func (l *link) quiet() bool {
	s, ok := l.conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && quiet
}

// put keeps a connection for the next request, if none is kept.
func (u *unary) put(l *link) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle != nil {
		l.conn.Close()
		return
	}
	u.idle = l
	l.close = time.AfterFunc(idleTime, func() { u.drop(l) })
}

// drop closes the idle connection, if it is that one.
func (u *unary) drop(l *link) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle == l && l != nil {
		u.idle = nil
		l.conn.Close()
	}
}

// closeIdle closes the connection that carries no request now.
func (u *unary) closeIdle() {
	u.mu.Lock()
	l := u.idle
	u.mu.Unlock()
	if l != nil {
		l.close.Stop()
		u.drop(l)
	}
}
