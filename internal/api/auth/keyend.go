package auth

import (
	"context"
	"net/http"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// farewell is the time between a key's end and the end of blocked reads and writes. A handler can
// send its last error in this time.
const farewell = 300 * time.Millisecond

// bindKeys returns a request's context that ends with the keys of the request.
func bindKeys(ctx context.Context, r *http.Request, store *keys.Store,
	control *http.ResponseController) context.Context {
	texts := shownKeys(r)
	bind := func(ctx context.Context) context.Context {
		for _, text := range texts {
			ctx = store.Bind(ctx, text)
		}
		return ctx
	}
	ctx = principal.WithBind(bind(ctx), bind)
	if control != nil {
		request := r.Context() // without the binding, which r gets later
		context.AfterFunc(ctx, func() { unblock(ctx, request, control) })
	}
	return ctx
}

// shownKeys returns the keys in a request's headers.
func shownKeys(r *http.Request) (texts []string) {
	for _, header := range r.Header.Values("Authorization") {
		if text, is := Bearer(header); is && keys.Looks(text) {
			texts = append(texts, text)
		}
	}
	for _, text := range r.Header.Values(api.HeaderKey) {
		if keys.Looks(text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// unblock makes reads and writes fail if a request's key has ended, because they do not watch a
// context.
func unblock(bound, request context.Context, control *http.ResponseController) {
	if !principal.KeyEnded(bound) {
		return
	}
	time.AfterFunc(farewell, func() {
		if request.Err() != nil { // the handler has returned
			return
		}
		_ = control.SetReadDeadline(time.Unix(1, 0))
		_ = control.SetWriteDeadline(time.Unix(1, 0))
	})
}
