package daemon

import (
	"context"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Streams end when the server begins to stop. A stream that follows a log never ends by itself, so
// the server must not wait for it.
type Streams struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// NewStreams returns streams that have not ended.
func NewStreams() *Streams {
	ctx, end := context.WithCancelCause(context.Background())
	return &Streams{ctx, end}
}

// Stop ends all streams.
func (s *Streams) Stop() { s.end(sandbox.ErrClosing) }

// context returns a request's context that also ends with the streams.
func (s *Streams) context(of context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(of)
	forget := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, sync.OnceFunc(func() { forget(); cancel(nil) })
}
