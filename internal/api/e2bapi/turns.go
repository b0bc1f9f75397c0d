package e2bapi

import (
	"context"
	"sync"
)

// turns serializes requests that change the end of one sandbox: first the record, then the life.
// The zero value is ready.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn // by the sandbox's ID
}

// turn is a lock, taken by a send to its channel.
type turn struct {
	taken chan struct{}
	users int // holders and waiters; guarded by turns.mu
}

// take waits for the turn of a sandbox. The caller must call leave.
func (t *turns) take(ctx context.Context, id string) (leave func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	one := t.all[id]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.all[id] = one
	}
	one.users++
	t.mu.Unlock()
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.drop(id, one)
		}, nil
	case <-ctx.Done():
		t.drop(id, one)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) drop(id string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, id)
	}
}
