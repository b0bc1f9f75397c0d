// Package intake is the body of a request. It records whether all of it was read, so that the server can read
// the rest after the handler has closed it. The trap: a handler that answers while it reads must use the body of
// Release.
package intake

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/api/iodeadline"
)

// Body is a request's body.
type Body struct {
	from  io.ReadCloser
	ended atomic.Bool // no more bytes come, or can be read

	mu     sync.Mutex // held during reads of the handler and of its goroutines
	closed bool
}

// New returns a Body that reads the server's own body.
func New(from io.ReadCloser) *Body { return &Body{from: from} }

// Read implements io.Reader. It fails after Close.
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *Body) read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// Close ends reading for the handler. The server closes the body itself. Close waits for a read in
// progress, as the server's own Close does. The proxy's transport reads in a goroutine that may
// outlive the handler, and must not use the body after that.
func (b *Body) Close() error {
	if body, ok := b.from.(*iodeadline.Body); ok {
		body.Leave()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// Ended reports whether the body has no more bytes, or whether Release has returned it.
func (b *Body) Ended() bool { return b.ended.Load() }

// Rest returns a reader of the unread part. It also reads after Close.
func (b *Body) Rest() io.Reader { return rest{b} }

type rest struct{ *Body }

func (r rest) Read(p []byte) (int, error) { return r.read(p) }

// Release returns the server's own body, for a handler that answers while it reads. The server must
// see that body closed before the handler returns, and takes care of the rest.
func Release(body io.ReadCloser) io.ReadCloser {
	if b, ok := body.(*Body); ok {
		b.ended.Store(true)
		return b.from
	}
	return body
}
