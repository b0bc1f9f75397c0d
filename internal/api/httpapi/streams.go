package httpapi

import (
	"context"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// streams end when the server begins to stop. A stream that follows a log never ends by itself, so
// the server must not wait for it.
type streams struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newStreams() *streams {
	ctx, end := context.WithCancelCause(context.Background())
	return &streams{ctx, end}
}

// stop ends all streams.
func (s *streams) stop() { s.end(sandbox.ErrClosing) }

// context returns a request's context that also ends with the streams.
func (s *streams) context(of context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(of)
	forget := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, sync.OnceFunc(func() { forget(); cancel(nil) })
}
