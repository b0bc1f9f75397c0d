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

// SilentError is a request whose body stopped before its end. It is a net.Error.
type SilentError struct{ After time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("the request's body stopped: no bytes came within %s", e.After)
}

// Timeout is what net.Error has.
func (e *SilentError) Timeout() bool { return true }

// Temporary is what net.Error has.
func (e *SilentError) Temporary() bool { return true }

func (e *SilentError) Unwrap() error { return os.ErrDeadlineExceeded }

// Silence returns why a request was ended whose body stopped; nil: it did not. Handlers ask it when they have failed:
// over HTTP/1 the request's context ends as well, and their own error may be that.
func Silence(ctx context.Context) error {
	if o, ok := ctx.Value(writerKey{}).(*Writer); ok {
		if e := o.silent.Load(); e != nil {
			return e
		}
	}
	return nil
}

// Body is a request's body, whose reads have a deadline that moves.
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

// left reports whether there is a body, some of which was not read.
func (b *Body) left() bool { return b != nil && !b.ended.Load() }

// Leave gives a read under way, and those of net/http that follow it, the time for the rest: no handler waits for it.
func (b *Body) Leave() {
	if b.left() {
		b.out.reads.lower(time.Now().Add(b.out.limits.Rest))
	}
}

// Close waits for a read under way, as that of net/http does.
func (b *Body) Close() error {
	b.Leave()
	return b.ReadCloser.Close()
}
