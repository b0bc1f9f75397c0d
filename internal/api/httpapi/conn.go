package httpapi

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// conn is a client's connection. What net/http itself answers, before any handler
// has the request, it puts into the API's words: nothing else could.
type conn struct {
	net.Conn
	crowd *crowd
	does  standing  // guarded by the crowd's mu
	since time.Time // the same

	http2   atomic.Bool  // it has begun with HTTP/2's preface: there is no answer of HTTP/1.1 to it
	handled atomic.Bool  // a handler has the request: what is written is its answer
	got     atomic.Int64 // bytes that came since the last request
	refused atomic.Bool  // we answered without a handler
	closed  atomic.Bool
	rest    atomic.Pointer[time.Time] // until when the rest of a body may come after its handler; nil: there is none
}

// SetReadDeadline is net/http's, too: it takes off the deadline of a body before it reads the rest of that.
func (c *conn) SetReadDeadline(t time.Time) error {
	if by := c.rest.Load(); by != nil && t.IsZero() {
		t = *by
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.got.Add(int64(n)) == int64(n) && bytes.HasPrefix(p[:n], []byte("PRI * HTTP/2")) { // RFC 9113 §3.4
		c.http2.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.handled.Load() && !c.http2.Load() && c.got.Load() > 0 {
		c.refuse(http.StatusRequestTimeout, "")
	}
	if err != nil {
		c.refusePlain(err)
	}
	return n, err
}

// reset makes the close of the connection a reset: an answer that was cut off must not look complete. Some clients of
// HTTP/1.1 take a plain close for the end of an answer.
func (c *conn) reset() {
	raw := c.Conn
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	if tcp, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

// refusePlain answers who speaks plain HTTP where TLS is spoken, and was told nothing by the handshake.
func (c *conn) refusePlain(err error) {
	var no tls.RecordHeaderError
	if !errors.As(err, &no) || no.Conn == nil || !beginsHTTP(no.RecordHeader[:]) || c.refused.Swap(true) {
		return
	}
	raw := no.Conn
	_ = raw.SetDeadline(time.Now().Add(lingerTime))
	writeRefusal(raw, fail(api.CodeInvalid, api.ReasonTLSScheme, "this address speaks TLS only"))
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	c.now(draining)
	_, _ = io.CopyN(io.Discard, raw, lingerBytes)
}

// beginsHTTP tells a request's first bytes from noise.
func beginsHTTP(p []byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE", "PRI *"} {
		if bytes.HasPrefix(p, []byte(method)) {
			return true
		}
	}
	return false
}

func (c *conn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	status, text := ownAnswer(p)
	if status < 400 {
		return c.Conn.Write(p)
	}
	c.refuse(status, text)
	return len(p), nil // whoever does not take it is closed next
}

// secure reports whether a client's connection is encrypted; nil: it is none of our listeners'.
func (c *conn) secure() bool {
	if c == nil {
		return false
	}
	_, is := c.Conn.(*tls.Conn)
	return is
}

// CloseWrite is what net/http does before a connection that it has refused is closed.
func (c *conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}

// Close waits, for a refused client, until it has sent what it wanted to: the kernel
// would otherwise answer that with a reset, and the client not see why.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.refused.Load() {
		c.now(draining)
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	c.crowd.remove(c)
	return c.Conn.Close()
}

// What is read of a client that has its answer already.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// ownAnswer reads the status, and what it adds to that, from an answer that net/http
// makes by itself.
func ownAnswer(p []byte) (status int, text string) {
	rest, ok := bytes.CutPrefix(p, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 {
		return 0, ""
	}
	status, _ = strconv.Atoi(string(rest[:3]))
	line, _, _ := strings.Cut(string(rest), "\r\n")
	_, text, _ = strings.Cut(line, ": ")
	return status, text
}

// refuse answers in the API's form, and lets the connection end.
func (c *conn) refuse(status int, text string) {
	if c.refused.Swap(true) {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
	writeRefusal(c.Conn, refusal(status, text))
}

func writeRefusal(w io.Writer, f *failure) {
	body, err := json.Marshal(f)
	if err != nil {
		return // a failure is plain strings
	}
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		f.status, http.StatusText(f.status), api.HeaderError, f.Code, len(body)+1, body)
}

// refusal words what net/http did not like.
func refusal(status int, text string) *failure {
	f := fail(api.CodeInvalid, "", "the request is not valid HTTP/1.1")
	switch status {
	case http.StatusRequestTimeout:
		return fail(api.CodeRequestTimeout, "", "the request's header did not arrive within %s", headerTimeout)
	case http.StatusRequestHeaderFieldsTooLarge:
		f = fail(api.CodeTooLarge, "", "the request's header is over the limit of %d KiB", maxHeaderBytes>>10)
	case http.StatusExpectationFailed:
		f = fail(api.CodeInvalid, "", "the request expects what this server does not do; it knows Expect: 100-continue")
	case http.StatusNotImplemented:
		f = fail(api.CodeUnsupported, "",
			"the request's transfer encoding is not supported: send the body with Content-Length, or chunked")
	case http.StatusHTTPVersionNotSupported:
		f = fail(api.CodeInvalid, "", "the request's version of HTTP is not supported: use HTTP/1.1")
	}
	f.status = status
	if text != "" {
		f.Message += ": " + ellipsis.Clip(text, 200)
	}
	return f
}
