package e2bapi

import (
	"context"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
)

const (
	// keyEvery is the interval at which a request for files looks whether the key of its token has ended.
	keyEvery = 250 * time.Millisecond
	// keyFarewell is the time for a last error between a key's end and the end of blocked writes.
	keyFarewell = 300 * time.Millisecond
)

// bindKey returns a context that ends with the key of a volume's token. The request does not show that key, so its
// authentication cannot bind it. end releases the context.
func bindKey(ctx context.Context, w http.ResponseWriter, alive func() bool) (bound context.Context, end func()) {
	bind := func(work context.Context) context.Context {
		bound, end := context.WithCancelCause(work)
		go watchKey(bound, alive, end)
		return bound
	}
	ctx, stop := context.WithCancel(ctx)
	ctx = principal.WithBind(bind(ctx), bind)
	returned := make(chan struct{})
	context.AfterFunc(ctx, func() {
		if principal.KeyEnded(ctx) {
			unblock(w, returned)
		}
	})
	return ctx, func() {
		close(returned)
		stop()
	}
}

// unblock makes the reads of a request fail, and soon its writes: they do not watch a context. A request to a guest that
// passes a body on ends only when the read of the body has.
func unblock(w http.ResponseWriter, returned <-chan struct{}) {
	control, past := http.NewResponseController(w), time.Unix(1, 0)
	_ = control.SetReadDeadline(past)
	select {
	case <-returned:
	case <-time.After(keyFarewell):
		_ = control.SetWriteDeadline(past)
	}
}

// watchKey ends a context when its key is no longer alive.
func watchKey(ctx context.Context, alive func() bool, end context.CancelCauseFunc) {
	tick := time.NewTicker(keyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			end(context.Cause(ctx))
			return
		case <-tick.C:
			if !alive() {
				end(principal.ErrKeyEnded)
				return
			}
		}
	}
}
