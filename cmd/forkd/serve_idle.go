//go:build linux

package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/httpapi"
)

// idleWatch ends a daemon that is of no use: one without sandboxes, of which nobody has wanted anything for a while.
type idleWatch struct {
	after     time.Duration // 0: never
	sandboxes func() int    // of any status: a paused one may have a deadline

	mu    sync.Mutex
	now   int       // requests in flight
	since time.Time // the last one ended
}

// used counts a request; the function that it returns ends it.
func (w *idleWatch) used() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
		w.since = time.Now()
	}
}

// unused is for how long nothing has been wanted.
func (w *idleWatch) unused() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now > 0 {
		return 0
	}
	return time.Since(w.since)
}

// watch returns a context that ends with ctx, or when the daemon is of no use.
func (w *idleWatch) watch(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if w.after == 0 {
		return ctx, cancel
	}
	w.since = time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.wait(ctx)
		if ctx.Err() == nil {
			log.Info("there are no sandboxes, and nobody has asked for anything", "for", w.after)
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

func (w *idleWatch) wait(ctx context.Context) {
	tick := time.NewTicker(min(max(w.after/10, 10*time.Millisecond), time.Minute))
	defer tick.Stop()
	for w.unused() < w.after || w.sandboxes() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// countRequests has the watch know of all requests, to the API and to sandboxes alike.
func (w *idleWatch) countRequests(listeners []httpapi.Listener) {
	for i := range listeners {
		listeners[i].Around = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				defer w.used()()
				next.ServeHTTP(rw, r)
			})
		}
	}
}
