package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestWhereTheDaemonMayListen(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, address, token, problem string
	}{
		{"loopback without a token", "tcp://127.0.0.1:0", "", "refused without a token"},
		{"loopback by name without a token", "tcp://localhost:0", "", "refused without a token"},
		{"everywhere without a token", "tcp://0.0.0.0:0", "", "refused without a token"},
		{"loopback", "tcp://127.0.0.1:0", token, ""},
		{"everywhere with a token", "tcp://0.0.0.0:0", token, "plain HTTP"},
		{"by a name with a token", "tcp://example.org:0", token, "plain HTTP"},
		{"everywhere by no name", "tcp://:0", token, "plain HTTP"},
		{"loopback of IPv6", "tcp://[::1]:0", token, ""},
		{"socket", "unix://" + dir + "/sub/s", "", ""},
		{"socket with a host", "unix://host/s", "", "want"},
		{"other scheme", "http://127.0.0.1:0", "", "want"},
		{"no scheme", "127.0.0.1:0", "", "want"},
		{"no port", "tcp://127.0.0.1", "", "port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := httpapi.Listen(t.Context(), c.address, c.token)
			if err == nil {
				l.Close()
			}
			if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}

func TestSocketIsPrivateAndNotStolen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	// A killed daemon leaves a socket without a server.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := httpapi.Listen(t.Context(), "unix://"+path, "")
	if err != nil {
		t.Fatalf("take over a dead socket: %v", err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v, %v", st.Mode(), err)
	}
	if _, err := httpapi.Listen(t.Context(), "unix://"+path, ""); err == nil {
		t.Error("a socket in use was taken over")
	}
}

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
	l, err := httpapi.Listen(t.Context(), "tcp://127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, status := make(chan error, 1), make(chan int, 1)
	go func() { ended <- s.Run(ctx, []httpapi.Listener{l}, grace) }()
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
