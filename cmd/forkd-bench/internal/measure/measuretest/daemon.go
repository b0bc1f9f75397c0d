// Package measuretest is for tests of the benchmarks. It provides a daemon over the fake engine and
// interrupts its requests, one after another. The trap: it runs in a bubble of testing/synctest
// with a clock that jumps, so its handlers must not wait for events outside the bubble.
package measuretest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/volumes"
)

// Daemon is a real HTTP server over the fake engine, with the snapshot "py".
type Daemon struct {
	Client *client.Client
	Engine *fakeengine.Engine

	t     *testing.T
	busy  sync.WaitGroup                              // requests under way
	meet  func(request context.Context, serve func()) // serves a request, or interrupts it
	spare func(*http.Request) bool
}

const token = "0123456789abcdef"

// Start starts a daemon, which ends with the test.
func Start(t *testing.T) *Daemon {
	t.Helper()
	images := fakeengine.NewImages("python-numpy")
	d := &Daemon{t: t, Engine: fakeengine.New(images), meet: func(_ context.Context, serve func()) { serve() }}
	store, err := fakedaemon.OpenVolumes(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.Engine.Volumes = store
	inner := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(d.Engine), Images: images,
		Volumes: volumes.Tenants{Store: store}}).Handler(auth.Access{Token: token})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { d.handle(w, r, inner) })}
	pipes := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		_ = server.Serve(pipes)
		close(ended)
	}()
	if d.Client, err = client.New(client.Options{URL: "http://daemon", Token: token, Dial: pipes.dial}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Client.Close()
		_ = server.Close()
		<-ended
		d.busy.Wait()
		d.Engine.Close()
	})
	if _, err := d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"},
		nil); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *Daemon) handle(w http.ResponseWriter, r *http.Request, inner http.Handler) {
	d.busy.Add(1)
	defer d.busy.Done()
	if d.spare != nil && d.spare(r) {
		inner.ServeHTTP(w, r)
		return
	}
	served := false
	answer := httptest.NewRecorder()
	d.meet(r.Context(), func() {
		served = true
		inner.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	})
	if !served {
		http.Error(w, "no answer today", http.StatusInternalServerError)
		return
	}
	for name, v := range answer.Header() {
		w.Header()[name] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// listener accepts in-memory connections.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { close(l.closed); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "daemon", Net: "unix"} }

// InterruptEach runs a benchmark repeatedly. It interrupts the run at its first request, then at
// its second and so on, before and after the daemon has served the request, and also fails
// requests. After each run it checks for leftover sandboxes and snapshots.
func InterruptEach(t *testing.T, run func(context.Context, *Daemon) error) {
	for name, interrupt := range map[string]func(request context.Context, cancel, serve func()){
		"cancelled before the daemon has done it": func(request context.Context, cancel, serve func()) {
			cancel()
			if !abandoned(request) {
				serve()
			}
		},
		"cancelled before the answer is there": func(request context.Context, cancel, serve func()) {
			serve()
			cancel()
			abandoned(request)
		},
		"refused": nil,
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			for at := 1; at == 1 || requests >= at-1; at++ {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					d := Start(t)
					requests = 0
					d.meet = func(request context.Context, serve func()) {
						requests++
						switch {
						case requests != at:
							serve()
						case interrupt != nil:
							interrupt(request, cancel, serve)
						}
					}
					d.spare = func(r *http.Request) bool {
						// a refused deletion would prevent the cleanup
						return interrupt == nil && (r.Method == http.MethodDelete || r.Method == http.MethodPut)
					}
					err := run(ctx, d)
					if requests < at && err != nil {
						t.Errorf("undisturbed: %v", err)
					}
					d.spare = func(*http.Request) bool { return true }
					d.Empty("at request", at)
				})
			}
			if requests < 3 {
				t.Errorf("only %d requests", requests)
			}
		})
	}
}

// abandoned waits a while for the client to leave.
func abandoned(request context.Context) bool {
	select {
	case <-request.Done():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// Empty checks for leftovers: only the snapshot "py" may exist.
func (d *Daemon) Empty(when ...any) {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	snapshots, err := d.Client.ListSnapshots(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	if other := slices.DeleteFunc(snapshots, func(s api.SnapshotInfo) bool { return s.Tag == "py" }); len(other) > 0 {
		d.t.Error(append(when, "there is left the snapshot", other[0].Tag)...)
	}
	sbs, err := d.Client.ListSandboxes(ctx)
	if err != nil || len(sbs) > 0 {
		d.t.Error(append(when, "there are left", len(sbs), "sandboxes", err)...)
	}
	if left := d.Engine.Volumes.List(""); len(left) > 0 {
		d.t.Error(append(when, "there is left the volume", left[0].Name)...)
	}
	for _, p := range d.Engine.Pools() {
		if p.Wanted != 0 {
			d.t.Error(append(when, "the pool of", p.Tag, "is left at", p.Wanted)...)
		}
	}
}
