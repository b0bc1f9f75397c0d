package imagebuild

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// life is the time after which a sandbox of a killed build ends. A build renews it every renewal.
const (
	life    = 5 * time.Minute
	renewal = time.Minute
)

// leases are the sandboxes of a build.
type leases struct {
	client *client.Client
	every  time.Duration // 0: renewal

	mu  sync.Mutex // guards ids
	ids map[string]bool
}

func (l *leases) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil {
		l.ids = map[string]bool{}
	}
	l.ids[id] = true
}

func (l *leases) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ids, id)
}

func (l *leases) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.ids))
}

// renew prolongs the sandboxes' lives until ctx ends. A request that fails is repeated at the next renewal.
func (l *leases) renew(ctx context.Context) {
	every := l.every
	if every == 0 {
		every = renewal
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		for _, id := range l.all() {
			secs := life.Seconds()
			_, _ = client.Life{Client: l.client}.SetLife(ctx, id, api.LifeRequest{TTLSecs: &secs})
		}
	}
}
