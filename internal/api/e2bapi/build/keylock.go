package build

import (
	"context"
	"sync"
)

// keyLock holds one lock for each key in use.
type keyLock struct {
	mu   sync.Mutex // guards held
	held map[string]chan struct{}
}

// lock waits for a key.
func (k *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		k.mu.Lock()
		if k.held == nil {
			k.held = map[string]chan struct{}{}
		}
		other := k.held[key]
		if other == nil {
			mine := make(chan struct{})
			k.held[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
