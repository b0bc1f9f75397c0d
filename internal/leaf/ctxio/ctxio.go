// Package ctxio cancels long reads with a context. It holds no resources. Beware: it does not interrupt a
// blocking Read; it is for reads that take long because of the amount of data.
package ctxio

import (
	"context"
	"io"
)

// Reader returns a reader whose reads fail with the cause of ctx once ctx has ended.
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
