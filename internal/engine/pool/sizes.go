package pool

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Sizes are the pools as those see them who ask how many shells there are, and should be.
type Sizes struct {
	p *Pools
	// begin admits a request; done must be called.
	begin func(context.Context) (_ context.Context, done func(), _ error)
}

// Sizes returns them.
func (p *Pools) Sizes(begin func(context.Context) (context.Context, func(), error)) *Sizes {
	return &Sizes{p, begin}
}

// SetPool sets how many shells are kept ready for a snapshot. Filling goes on in the background.
// The size is remembered with the store.
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
