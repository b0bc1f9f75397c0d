package httpapi

import (
	"context"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// streams end when the server begins to stop: what follows has no end of its own, and nobody should
// wait for it.
type streams struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newStreams() *streams {
	ctx, end := context.WithCancelCause(context.Background())
	return &streams{ctx, end}
}

// stop ends all of them.
func (s *streams) stop() { s.end(sandbox.ErrClosing) }

// context is a request's, that ends with the streams as well.
func (s *streams) context(of context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(of)
	forget := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, sync.OnceFunc(func() { forget(); cancel(nil) })
}
