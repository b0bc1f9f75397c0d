package agentclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/agentproto"
)

// maxHeaderBytes bounds a response's header: one guest's garbage must not fill the host's memory.
const maxHeaderBytes = 64 << 10

// idleTime is how long a connection without a request is kept.
const idleTime = time.Minute

// unary asks what has one message each way, in Connect's protocol over HTTP/1.1, on the
// goroutine of its caller: one write and mostly one read. http.Transport has two goroutines
// for each connection, and two hand-overs between them and the caller for each request,
// which are a good part of the daemon's share of an eval. It keeps one connection; requests
// at the same time have more, which are closed.
type unary struct {
	dial  DialFunc
	token string
	ahead ahead

	mu   sync.Mutex // guards what follows; held for moments
	idle *link      // carries no request; nil: there is none
}

// link is one connection. One request at a time uses it.
type link struct {
	conn  net.Conn
	limit io.LimitedReader // over conn
	in    *bufio.Reader    // over limit
	out   bytes.Buffer
	close *time.Timer // while it is idle
}

// call asks, and decodes the answer into out. Its errors have Connect's codes.
func (u *unary) call(ctx context.Context, procedure string, in, out proto.Message) error {
	l, err := u.take(ctx)
	if err != nil {
		return broken(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	keep, err := l.roundTrip(ctx, procedure, u.token, in, out)
	if stop() && keep {
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
	return connect.NewError(connect.CodeUnavailable, err)
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
	l.limit.R = conn
	l.in = bufio.NewReaderSize(&l.limit, 4096)
	return l, nil
}

// DialEval begins to open a connection for Eval, if there is none that can be used again; ctx ends that. The
// caller calls drop when Eval has returned, or was not called.
func (c *Client) DialEval(ctx context.Context) (drop func()) {
	u := c.unary
	if u == nil {
		return func() {}
	}
	u.mu.Lock()
	idle := u.idle != nil
	u.mu.Unlock()
	if !idle {
		u.ahead.begin(ctx, u.dial)
	}
	return u.ahead.drop
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

// roundTrip sends a request and receives its answer; keep says that the connection can be
// used again.
func (l *link) roundTrip(ctx context.Context, procedure, token string, in, out proto.Message) (keep bool, err error) {
	if err := l.write(ctx, procedure, token, in); err != nil {
		return false, err
	}
	l.limit.N = maxHeaderBytes + agentproto.MaxMessageBytes
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return false, broken(ctx, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, broken(ctx, err)
	}
	keep = !resp.Close && l.in.Buffered() == 0
	if resp.StatusCode != http.StatusOK {
		return keep, refused(resp.Status, body)
	}
	if len(body) > agentproto.MaxMessageBytes {
		return false, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("an answer of %d bytes, want at most %d", len(body), agentproto.MaxMessageBytes))
	}
	if err := proto.Unmarshal(body, out); err != nil {
		return false, connect.NewError(connect.CodeInternal, fmt.Errorf("decode answer: %w", err))
	}
	return keep, nil
}

// write sends a request at once.
func (l *link) write(ctx context.Context, procedure, token string, in proto.Message) error {
	b := &l.out
	b.Reset()
	fmt.Fprintf(b, "POST %s HTTP/1.1\r\nHost: agent\r\nContent-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n"+
		"Content-Length: %d\r\n", procedure, proto.Size(in))
	if deadline, ok := ctx.Deadline(); ok {
		fmt.Fprintf(b, "Connect-Timeout-Ms: %s\r\n", strconv.FormatInt(max(0, time.Until(deadline).Milliseconds()), 10))
	}
	if token != "" {
		fmt.Fprintf(b, "X-Access-Token: %s\r\n", token)
	}
	b.WriteString("\r\n")
	whole, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b.Bytes(), in)
	if err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("encode request: %w", err))
	}
	if _, err := l.conn.Write(whole); err != nil {
		return broken(ctx, err)
	}
	return nil
}

// refused is the error that an agent answers with.
func refused(status string, body []byte) error {
	var e struct {
		Code    connect.Code `json:"code"`
		Message string       `json:"message"`
	}
	if json.Unmarshal(body, &e) != nil || e.Code == 0 {
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("the agent answers %s", status))
	}
	return connect.NewWireError(e.Code, errors.New(e.Message))
}
