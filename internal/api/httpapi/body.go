package httpapi

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/listen"
)

// intake is a request's body. It records whether all of it was read. swallow can still read it
// after the handler has closed it.
type intake struct {
	from  io.ReadCloser
	ended atomic.Bool // no more bytes come, or can be read

	mu     sync.Mutex // held during reads of the handler and of its goroutines
	closed bool
}

func (b *intake) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *intake) read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// Close ends reading for the handler. The server closes the body itself. Close waits for a read in
// progress, as the server's own Close does. The proxy's transport reads in a goroutine that may
// outlive the handler, and must not use the body after that.
func (b *intake) Close() error {
	if body, ok := b.from.(*iodeadline.Body); ok {
		body.Leave()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// release returns the server's own body, for a handler that answers while it reads. The server must
// see that body closed before the handler returns, and takes care of the rest.
func release(body io.ReadCloser) io.ReadCloser {
	if b, ok := body.(*intake); ok {
		b.ended.Store(true)
		return b.from
	}
	return body
}

// rest reads the unread part of the body.
type rest struct{ *intake }

func (r rest) Read(p []byte) (int, error) { return r.read(p) }

// drainBody makes errors reach clients that send their whole body before they read. The kernel resets
// a connection closed with unread bytes, and the client would see only the reset. swallow therefore
// reads and discards the rest, within limits of size and time, and then closes the connection.
func (s *Server) drainBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec, ok := w.(*recorder)
		if !ok || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := &intake{from: r.Body}
		rec.body, r.Body = body, body
		next.ServeHTTP(w, r)
		rec.finish()
		if rec.status < 400 || body.ended.Load() || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			return
		}
		control := http.NewResponseController(w)
		if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(s.limits.deadlines.Rest)) != nil {
			return
		}
		listen.ConnOf(r.Context()).Drain()
		_, _ = io.CopyN(io.Discard, rest{body}, s.limits.swallowBytes)
	})
}
