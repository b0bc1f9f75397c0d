package listen

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
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Conn is a client's connection. It rewrites answers that net/http sends before any handler sees
// the request into the API's form. No other code can do this.
type Conn struct {
	net.Conn
	connLimiter *connLimiter
	does        standing  // guarded by connLimiter.mu
	since       time.Time // guarded by connLimiter.mu

	http2   atomic.Bool  // it began with the HTTP/2 preface: an answer in HTTP/1.1 is not possible
	handled atomic.Bool  // a handler has the request: writes are its answer
	got     atomic.Int64 // bytes since the last request
	refused atomic.Bool  // we answered without a handler
	closed  atomic.Bool
	rest    atomic.Pointer[time.Time] // deadline for the rest of a body after its handler; nil: none
}

// SetReadDeadline keeps the deadline for the rest of a body. net/http would clear it before it
// reads that rest.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if by := c.rest.Load(); by != nil && t.IsZero() {
		t = *by
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *Conn) Read(p []byte) (int, error) {
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

// Handle records that a handler has the request. c is nil if the connection came from another listener.
func (c *Conn) Handle() {
	if c != nil {
		c.handled.Store(true)
	}
}

// Drain records that the body of a refused request is read and discarded. c is nil if the connection came from another
// listener.
func (c *Conn) Drain() { c.now(draining) }

// KeepDeadline sets the deadline for the rest of a body after its handler. c is nil if the connection came from another
// listener.
func (c *Conn) KeepDeadline(t time.Time) {
	if c != nil && !t.IsZero() {
		c.rest.Store(&t)
	}
}

// Reset makes Close reset the connection, so that a cut-off answer does not look complete. Some
// HTTP/1.1 clients take a plain close for the end of an answer.
func (c *Conn) Reset() {
	raw := c.Conn
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	if tcp, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

// refusePlain answers a client with plain HTTP on a TLS port. The failed handshake sent no answer.
func (c *Conn) refusePlain(err error) {
	var no tls.RecordHeaderError
	if !errors.As(err, &no) || no.Conn == nil || !beginsHTTP(no.RecordHeader[:]) || c.refused.Swap(true) {
		return
	}
	raw := no.Conn
	_ = raw.SetDeadline(time.Now().Add(lingerTime))
	writeRefusal(raw, apierror.New(api.CodeInvalid, api.ReasonTLSScheme, "this address speaks TLS only"))
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	c.now(draining)
	_, _ = io.CopyN(io.Discard, raw, lingerBytes)
}

// beginsHTTP reports whether the bytes look like the begin of an HTTP request.
func beginsHTTP(p []byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE", "PRI *"} {
		if bytes.HasPrefix(p, []byte(method)) {
			return true
		}
	}
	return false
}

func (c *Conn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	status, text := ownAnswer(p)
	if status < 400 {
		return c.Conn.Write(p)
	}
	c.refuse(status, text)
	return len(p), nil // the client is disconnected next in any case
}

// Secure reports whether a client's connection is encrypted. c is nil if the connection came from
// another listener.
func (c *Conn) Secure() bool {
	if c == nil {
		return false
	}
	_, is := c.Conn.(*tls.Conn)
	return is
}

// CloseWrite is called by net/http before it closes a refused connection.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}

// Close waits until a refused client has sent its data. Otherwise the kernel would answer that data
// with a reset, and the client would not see the refusal.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.refused.Load() {
		c.now(draining)
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	c.connLimiter.remove(c)
	return c.Conn.Close()
}

// Limits for reading from a client after its answer.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// ownAnswer parses the status and the text of net/http's own answer.
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

// refuse answers in the API's form, and ends the connection.
func (c *Conn) refuse(status int, text string) {
	if c.refused.Swap(true) {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
	writeRefusal(c.Conn, Refusal(status, text))
}

func writeRefusal(w io.Writer, f *apierror.Error) {
	body, err := json.Marshal(f)
	if err != nil {
		return // a failure consists of plain strings
	}
	status := f.GetStatus()
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), api.HeaderError, f.Code, len(body)+1, body)
}

// Refusal describes the cause for which net/http refused a request.
func Refusal(status int, text string) *apierror.Error {
	f := apierror.New(api.CodeInvalid, "", "the request is not valid HTTP/1.1")
	switch status {
	case http.StatusRequestTimeout:
		return apierror.New(api.CodeRequestTimeout, "", "the request's header did not arrive within %s", HeaderTimeout)
	case http.StatusRequestHeaderFieldsTooLarge:
		f = apierror.New(api.CodeTooLarge, "", "the request's header is over the limit of %d KiB", maxHeaderBytes>>10)
	case http.StatusExpectationFailed:
		f = apierror.New(api.CodeInvalid, "", "unsupported expectation: this server supports Expect: 100-continue only")
	case http.StatusNotImplemented:
		f = apierror.New(api.CodeUnsupported, "",
			"the request's transfer encoding is not supported: send the body with Content-Length, or chunked")
	case http.StatusHTTPVersionNotSupported:
		f = apierror.New(api.CodeInvalid, "", "the request's version of HTTP is not supported: use HTTP/1.1")
	}
	f = f.WithStatus(status)
	if text != "" {
		f.Message += ": " + ellipsis.Clip(text, 200)
	}
	return f
}
