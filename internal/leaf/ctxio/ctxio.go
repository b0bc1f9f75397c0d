// Package ctxio ends long reads with a context. It owns nothing. The trap: a Read that blocks is not ended: it is for
// work that takes long because there is much of it.
package ctxio

import (
	"context"
	"io"
)

// Reader returns r with reads that fail with the cause of ctx once that has ended.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context
	r   io.Reader
}

func (c reader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
