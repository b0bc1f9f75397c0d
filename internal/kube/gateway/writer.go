package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// intake is the body of a request. A node may answer before it has read the whole body. Then a slow client must not
// hold up the end of the request: a pending read ends soon after Close.
type intake struct {
	io.ReadCloser
	rc    *http.ResponseController
	rest  time.Duration
	ended atomic.Bool
}

func (b *intake) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (b *intake) Close() error {
	if !b.ended.Load() {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.rest))
	}
	return b.ReadCloser.Close()
}

// writer ends the answer to a client that takes no bytes for some time. Otherwise the client would hold a node's
// connection, and a place among the gateway's requests.
type writer struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	status int
	body   *intake // nil for a request without a body
}

func (w *writer) WriteHeader(status int) {
	if status >= 400 && w.body != nil && !w.body.ended.Load() {
		w.Header().Set("Connection", "close") // otherwise the server would wait for the rest of the body first
	}
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	defer w.bound()()
	return w.ResponseWriter.Write(b)
}

// FlushError implements the interface that http.ResponseController calls.
func (w *writer) FlushError() error {
	defer w.bound()()
	return w.rc.Flush()
}

// bound sets the deadline of one write. A recorder of a test has no deadlines.
func (w *writer) bound() func() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.stall))
	return func() { _ = w.rc.SetWriteDeadline(time.Time{}) }
}

// Hijack takes over the connection for another protocol.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rest, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.status = http.StatusSwitchingProtocols
	return stalling{c, w.stall}, rest, nil
}

// Unwrap gives http.ResponseController access to the other methods.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// class returns the status for metrics.
func (w *writer) class() string {
	if w.status == 0 {
		return "none"
	}
	return strconv.Itoa(w.status/100) + "xx"
}

// stalling is a connection with a deadline for each write.
type stalling struct {
	net.Conn
	stall time.Duration
}

func (c stalling) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.stall))
	return c.Conn.Write(b)
}

// CloseWrite ends one direction.
func (c stalling) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil // over TLS with HTTP/1.1 the other direction has its end as well
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
