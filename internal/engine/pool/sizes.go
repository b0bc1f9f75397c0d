package pool

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Sizes gets and sets the sizes of pools.
type Sizes struct {
	p *Pools
	// begin admits a request. The caller must call done.
	begin func(context.Context) (_ context.Context, done func(), _ error)
}

// Sizes returns the interface to get and set sizes.
func (p *Pools) Sizes(begin func(context.Context) (context.Context, func(), error)) *Sizes {
	return &Sizes{p, begin}
}

// SetPool sets the number of ready shells for a snapshot. The pool is filled in the background. The
// size is stored.
func (s *Sizes) SetPool(ctx context.Context, tag string, size int) error {
	_, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.p.Set(tag, size)
}

// Pools returns the pools by tag.
func (s *Sizes) Pools() []sandbox.PoolStatus { return s.p.Status() }
