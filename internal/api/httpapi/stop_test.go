package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// slow is an engine with a ping that blocks until it is released or cut off.
type slow struct {
	fakeengine.Flat
	entered, letGo chan struct{}
}

func (s slow) Ping(ctx context.Context, _ string) (sandbox.Pong, error) {
	close(s.entered)
	select {
	case <-s.letGo:
		return sandbox.Pong{PID: 1}, nil
	case <-ctx.Done():
		return sandbox.Pong{}, ctx.Err()
	}
}

// stopWhileBusy stops a server with a request in flight, and returns the request's status (0 if it
// was cut off).
func stopWhileBusy(t *testing.T, grace time.Duration, after func(letGo chan struct{})) int {
	t.Helper()
	b := newBench(t)
	e := slow{b.engine, make(chan struct{}), make(chan struct{})}
	s := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(e)})
	l, err := listen.Listen(t.Context(), "tcp://127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, status := make(chan error, 1), make(chan int, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{l}, grace) }()
	go func() {
		r, err := http.NewRequest(http.MethodPost, "http"+strings.TrimPrefix(l.URL, "tcp")+"/v1/sandboxes/sb-1/ping", nil)
		if err != nil {
			panic(err) // a constant
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-e.entered
	stop()
	after(e.letGo)
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	return <-status
}

func TestStopWaitsForRequests(t *testing.T) {
	if status := stopWhileBusy(t, time.Minute, func(letGo chan struct{}) { close(letGo) }); status != 200 {
		t.Errorf("a request in flight got status %d", status)
	}
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	if status := stopWhileBusy(t, time.Millisecond, func(chan struct{}) {}); status == 200 {
		t.Error("a request that hangs was answered")
	}
}
