package iodeadline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// SilentError reports a request with a body that stopped before its end. It is a net.Error.
type SilentError struct {
	// After is how long no bytes came.
	After time.Duration
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("the request's body stopped: no bytes came within %s", e.After)
}

// Timeout implements net.Error.
func (e *SilentError) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *SilentError) Temporary() bool { return true }

func (e *SilentError) Unwrap() error { return os.ErrDeadlineExceeded }

// Silence returns the error of a request ended because its body stopped, or nil. Handlers call it
// when they have failed: over HTTP/1 the request's context ends as well, and the handler's own
// error may report only the context's end.
func Silence(ctx context.Context) error {
	if o, ok := ctx.Value(writerKey{}).(*Writer); ok {
		if e := o.silent.Load(); e != nil {
			return e
		}
	}
	return nil
}

// Body is a request's body with a moving deadline for reads.
type Body struct {
	io.ReadCloser
	out           *Writer
	ended, failed atomic.Bool
}

func (b *Body) Read(p []byte) (int, error) {
	reads := &b.out.reads
	reads.move(time.Now().Add(b.out.limits.Read))
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
		reads.move(time.Time{})
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
		reads.clear()
	default:
		b.failed.Store(true)
		if errors.Is(err, os.ErrDeadlineExceeded) && reads.hit() {
			silent := &SilentError{b.out.limits.Read}
			b.out.silent.Store(silent)
			err = silent
		}
	}
	return n, err
}

// left reports whether there is a body with unread bytes.
func (b *Body) left() bool { return b != nil && !b.ended.Load() }

// Leave sets the time for the rest of the body as the deadline of a read in progress and of later
// reads by net/http. No handler waits for the rest.
func (b *Body) Leave() {
	if b.left() {
		b.out.reads.lower(time.Now().Add(b.out.limits.Rest))
	}
}

// Close waits for a read in progress, as net/http's does.
func (b *Body) Close() error {
	b.Leave()
	return b.ReadCloser.Close()
}
