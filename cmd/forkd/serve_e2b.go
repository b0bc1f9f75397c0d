//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"github.com/forkd/forkd/internal/e2bapi"
	"github.com/forkd/forkd/internal/e2bapi/apikey"
	"github.com/forkd/forkd/internal/e2bapi/build"
	"github.com/forkd/forkd/internal/e2bapi/records"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/ingress"
	"github.com/forkd/forkd/internal/undo"
)

// outside is what requests from outside of the native API are for: servers in sandboxes, and
// E2B's API.
func (o serveOptions) outside(ctx context.Context, engine *engine.Engine, token string, log *slog.Logger,
	opened *undo.Stack) (httpapi.Ingress, error) {
	if o.domain == "" {
		return nil, nil
	}
	ports := ingress.New(ingress.Config{Domain: o.domain, Dialer: engine, Guard: engine, Wake: engine.Wake, Log: log})
	if !o.e2b {
		return ports, nil
	}
	store, skipped, err := records.Open(filepath.Join(o.data, "e2b"))
	if err != nil {
		return nil, err
	}
	for _, s := range skipped {
		log.Warn("a record of E2B's API is passed over", "record", s)
	}
	made, unread, err := build.OpenStore(filepath.Join(o.data, "e2b-templates"))
	if err != nil {
		return nil, err
	}
	for _, s := range unread {
		log.Warn("a record of templates is passed over", "record", s)
	}
	h := e2bapi.New(e2bapi.Options{Engine: engine, Records: store, Builds: made, Ports: ports,
		Lives: e2bLives{engine}, Authenticate: e2bAuth(token),
		Domain: o.domain, Log: log})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	opened.Push(func() {
		stop()
		running.Wait()
	})
	return both{h, ports}, nil
}

// both asks E2B's API first: it serves ports of sandboxes as well.
type both struct {
	*e2bapi.Handler
	ports *ingress.Handler
}

func (b both) Match(r *http.Request) bool { return b.Handler.Match(r) || b.ports.Match(r) }

func (b both) Sandbox(r *http.Request) string {
	if b.Handler.Match(r) {
		return b.Handler.Sandbox(r)
	}
	return b.ports.Sandbox(r)
}

func (b both) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.Handler.Match(r) {
		b.Handler.ServeHTTP(w, r)
		return
	}
	b.ports.ServeHTTP(w, r)
}

// e2bAuth takes the daemon's token, or its key, as E2B's clients show it or as ours do.
func e2bAuth(token string) func(*http.Request) (context.Context, error) {
	return func(r *http.Request) (context.Context, error) {
		shown := r.Header.Get("X-Api-Key")
		if shown == "" {
			scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			if strings.EqualFold(scheme, "Bearer") {
				shown = strings.TrimSpace(bearer)
			}
		}
		switch {
		case shown == "":
			return nil, errors.New("the API key is missing (X-API-KEY)")
		case token == "":
			return nil, errors.New("this daemon has no API key: it serves its socket only")
		case !apikey.Matches(shown, token):
			return nil, errors.New("the API key is wrong")
		}
		return r.Context(), nil
	}
}
