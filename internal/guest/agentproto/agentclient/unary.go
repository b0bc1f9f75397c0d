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

// maxHeaderBytes limits a response's header. Garbage from one guest must not fill the host's
// memory.
const maxHeaderBytes = 64 << 10

// idleTime is how long a connection without a request stays open.
const idleTime = time.Minute

// unary makes calls with one message in each direction. It runs on the caller's goroutine, with one
// write and mostly one read. http.Transport uses two goroutines per connection and two hand-overs
// per request, a large part of the daemon's share of an eval. unary keeps one connection.
// Concurrent requests open more and close them afterwards.
type unary struct {
	dial  DialFunc
	ask   exchange
	ahead ahead

	mu   sync.Mutex // guards idle; held for moments
	idle *link      // carries no request; may be nil
}

// exchange sends a request on a connection and receives its answer. keep reports whether the
// connection can be used again. Its errors have Connect's codes.
type exchange func(ctx context.Context, l *link, in, out proto.Message) (keep bool, err error)

// unreached is the error of a request that was not sent, for lack of a connection.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// link is one connection. It carries one request at a time.
type link struct {
	conn  net.Conn
	asks  asking           // over conn
	limit io.LimitedReader // over asks
	in    *bufio.Reader    // over limit
	out   bytes.Buffer
	close *time.Timer // while it is idle
}

// asking calls keep for every read. It returns ErrNoRoom if keep does not accept all bytes.
type asking struct {
	io.Reader
	keep func(n int) int // set per request; may be nil
}

func (a *asking) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 && a.keep != nil && a.keep(n) < n {
		return 0, ErrNoRoom
	}
	return n, err
}

// call sends a request and decodes the answer into out. Its errors have Connect's codes. keep gets
// a number of received bytes and returns how many of them the caller may keep. If that is fewer,
// call fails with ErrNoRoom. keep may be nil.
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

// broken returns the error for a broken connection, or for a caller that is no longer waiting.
func broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	return connect.NewError(codeOf(err), err)
}

// take returns the idle connection, or opens one.
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

// dialAhead starts to open a connection unless an idle one exists. ctx cancels the dial.
func (u *unary) dialAhead(ctx context.Context) {
	u.mu.Lock()
	idle := u.idle != nil
	u.mu.Unlock()
	if !idle {
		u.ahead.begin(ctx, u.dial)
	}
}

// close closes connections without a request.
func (u *unary) close() {
	u.ahead.drop()
	u.closeIdle()
}

// quiet reports whether a connection can be used again. It cannot if the agent has closed it or has
// sent unrequested bytes. Sending a request is no way to find out: if it failed, the caller could
// not know whether the agent has carried it out.
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

// put keeps a connection for the next request unless one is kept already.
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

// drop closes l if it is the idle connection.
func (u *unary) drop(l *link) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle == l && l != nil {
		u.idle = nil
		l.conn.Close()
	}
}

// closeIdle closes the idle connection.
func (u *unary) closeIdle() {
	u.mu.Lock()
	l := u.idle
	u.mu.Unlock()
	if l != nil {
		l.close.Stop()
		u.drop(l)
	}
}
