package httpapi

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/api/iodeadline"
)

// intake is a request's body. It knows whether all of it was read, and stays
// readable for swallow when the handler has closed it.
type intake struct {
	from  io.ReadCloser
	ended atomic.Bool // nothing more comes, or can be read

	mu     sync.Mutex // held while the handler, or what it started, reads
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

// Close ends reading for the handler; the body itself is the server's to close. It
// waits for a read under way, as the server's own does: the proxy's transport reads
// in a goroutine that may outlive the handler, and then must touch the body no more.
func (b *intake) Close() error {
	if body, ok := b.from.(*iodeadline.Body); ok {
		body.Leave()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// release gives the server's own body to a handler that answers while it reads: for
// those the server needs to see it closed before they return, and looks after the rest.
func release(body io.ReadCloser) io.ReadCloser {
	if b, ok := body.(*intake); ok {
		b.ended.Store(true)
		return b.from
	}
	return body
}

// rest reads what the handler left.
type rest struct{ *intake }

func (r rest) Read(p []byte) (int, error) { return r.read(p) }

// swallow makes an error reach clients that send all of a body before they read:
// a connection that is closed with bytes unread is reset, and the client sees only
// that. So the rest is read and thrown away, within bounds of size and time, and
// then the connection is closed.
func (s *Server) swallow(next http.Handler) http.Handler {
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
		connOf(r.Context()).now(draining)
		_, _ = io.CopyN(io.Discard, rest{body}, s.limits.swallowBytes)
	})
}
