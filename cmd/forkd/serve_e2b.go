//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/apikey"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routes/sandboxes"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// outside returns the handler of requests outside the native API: for servers in sandboxes, and for
// E2B's API. The server is set before the first request.
func (o serveOptions) outside(ctx context.Context, engine *engine.Engine, server *apiServer,
	secretStore *secrets.Store, registry build.Registry, access auth.Access, log *slog.Logger,
	opened *undo.Stack) (httpapi.Ingress, error) {
	if o.domain == "" {
		return nil, nil
	}
	ports := ingress.New(ingress.Config{Domain: o.domain, Dialer: engine, Guard: engine, Wake: engine.Wake,
		Ended: engine.Ended, Log: log})
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
	made.Reserve(int64(o.diskReserveMiB) << 20)
	h := e2bapi.New(e2bapi.Options{Engine: e2bapi.EngineOf(engine.Roles()), Records: store, Builds: made,
		Registry: registry, Ports: ports,
		Secrets: secretStore, Volumes: engine.TenantVolumes(),
		Lives: e2bLives{engine}, Authenticate: e2bAuth(server, access),
		Fetch: func(ctx context.Context, id string, peers []string) error {
			return server.Load().FetchSandbox(ctx, id, peers)
		},
		View:   func(ctx context.Context) e2bapi.Engine { return e2bapi.EngineFor(server.Load().View(ctx)) },
		Note:   func(ctx context.Context, a e2bapi.Act) { requestinfo.NoteAct(ctx, requestinfo.Act(a)) },
		Domain: o.domain, PrivatePorts: o.e2bPrivatePorts, CORS: o.cors, Log: log})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	opened.Push(func() {
		stop()
		running.Wait()
	})
	return both{h, ports, store}, nil
}

// both tries E2B's API first, which serves ports of sandboxes as well.
type both struct {
	*e2bapi.Handler
	ports *ingress.Handler
	store *records.Store
}

// secretsOf returns the function with the secrets of E2B's sandboxes, or nil.
func secretsOf(outside httpapi.Ingress) func() []string {
	if b, is := outside.(both); is {
		return b.store.Secrets
	}
	return nil
}

// carried returns the facts of E2B's API that go along with a sandbox, or nil.
func carried(outside httpapi.Ingress) sandboxes.Carrier {
	if b, is := outside.(both); is {
		return b.store
	}
	return nil
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

// e2bAuth authenticates with keys, the daemon's token or its E2B form. They may be in the headers
// of E2B's clients or in ours. A request without a credential is refused, even over the Unix
// socket.
func e2bAuth(server *apiServer, access auth.Access) func(*http.Request) (context.Context, error) {
	access.Alias = func(shown string) bool { return apikey.Matches(shown, access.Token) }
	authenticate := sync.OnceValue(func() func(*http.Request) (context.Context, error) {
		return server.Load().Authenticator(access)
	})
	return func(r *http.Request) (context.Context, error) {
		if r.Header.Get("X-Api-Key") == "" && r.Header.Get("Authorization") == "" {
			return nil, errors.New("the API key is missing (X-API-KEY)")
		}
		if r.Header.Get("X-Api-Key") != "" { // E2B's clients may send an account's token with it
			header := r.Header.Clone()
			header.Del("Authorization")
			shown := *r
			shown.Header = header
			r = &shown
		}
		return authenticate()(r)
	}
}
