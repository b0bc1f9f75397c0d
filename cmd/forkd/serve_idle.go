//go:build linux

package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/listen"
)

// idleWatch ends an unused daemon: it has no sandboxes and got no requests for a while.
type idleWatch struct {
	after     time.Duration // 0: never
	sandboxes func() int    // of any status, because a paused one may have a deadline

	mu    sync.Mutex
	now   int       // requests in flight
	since time.Time // end of the last request
}

// used counts a request until the returned function is called.
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

// unused returns the time since the last request.
func (w *idleWatch) unused() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now > 0 {
		return 0
	}
	return time.Since(w.since)
}

// watch returns a context. It ends with ctx, or when the daemon is unused.
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
			log.Info("exiting: no sandboxes and no requests", "for", w.after)
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

// countRequests counts all requests, to the API and to sandboxes.
func (w *idleWatch) countRequests(listeners []listen.Listener) {
	for i := range listeners {
		listeners[i].Around = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				defer w.used()()
				next.ServeHTTP(rw, r)
			})
		}
	}
}
