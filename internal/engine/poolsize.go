package engine

import (
	"context"

	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/sandbox"
)

// SetPool sets how many shells are kept ready for a snapshot. Filling goes on in
// the background. The size is remembered with the store.
func (e *Engine) SetPool(ctx context.Context, tag string, size int) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if size < 0 || size > sandbox.MaxPool {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "pool size is %d, want 0 to %d", size, sandbox.MaxPool)
	}
	entry, err := e.store.Get(tag)
	if err != nil {
		return sandbox.StoreError(err)
	}
	return e.pools.Set(pool.Key{Shape: entry.Manifest.Shape, Tag: tag, Hash: entry.ContentHash}, size)
}

// Pools returns the pools by tag.
func (e *Engine) Pools() []sandbox.PoolStatus { return e.pools.Status() }

// poolOf names the pool of a tag's snapshot, if that is there.
func (e *Engine) poolOf(tag string) (pool.Key, bool) {
	entry, err := e.store.Get(tag)
	if err != nil {
		return pool.Key{}, false
	}
	return pool.Key{Shape: entry.Manifest.Shape, Tag: tag, Hash: entry.ContentHash}, true
}
