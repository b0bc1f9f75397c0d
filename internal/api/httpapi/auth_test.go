package httpapi_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/listen"
)

// serveOn runs a server on an address until the test ends.
func serveOn(t *testing.T, s *httpapi.Server, address, token string) listen.Listener {
	t.Helper()
	l, err := listen.Listen(t.Context(), address, token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{l}, 100*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return l
}

// TestTheKernelTellsWhoConnected connects as another user to the socket of a real listener. An
// administrator has opened the socket's mode to all users.
func TestTheKernelTellsWhoConnected(t *testing.T) {
	dir, err := os.MkdirTemp("", "forkd-peer-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	serveOn(t, newBench(t).server, "unix://"+path, "")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	status := func(dial func() (net.Conn, error)) (int, api.Error) {
		tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }}
		resp, err := (&http.Client{Transport: tr}).Get("http://forkd/v1/sandboxes")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var e api.Error
		_ = json.NewDecoder(resp.Body).Decode(&e) // a list does not decode
		return resp.StatusCode, e
	}
	if got, e := status(func() (net.Conn, error) { return net.Dial("unix", path) }); got != 200 {
		t.Errorf("the daemon's own user gets %d %+v", got, e)
	}
	if os.Geteuid() != 0 {
		t.Log("only root can be somebody else: the other half is tested as root")
		return
	}
	if got, e := status(func() (net.Conn, error) { return dialAs(54321, path) }); got != 403 || e.Code != api.CodeForbidden {
		t.Errorf("another user gets %d %+v", got, e)
	}
}

// dialAs connects on a thread that becomes another user permanently.
func dialAs(uid uintptr, path string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
			err = e
			return
		}
		c, err = net.Dial("unix", path)
	}()
	<-done
	return c, err
}

func TestWrongTokenOnEveryListener(t *testing.T) {
	for _, scheme := range []string{"tcp", "unix"} {
		t.Run(scheme, func(t *testing.T) {
			address := "tcp://127.0.0.1:0"
			if scheme == "unix" {
				address = "unix://" + filepath.Join(t.TempDir(), "s")
			}
			l := serveOn(t, newBench(t).server, address, token)
			for _, shown := range []string{"Bearer wrong", "Bearer " + token + "0", "Bearer " + token[1:], "Basic " + token, "Bearer", token} {
				_, e := exchange(t, dial(t, l), "GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: "+shown+"\r\nConnection: close\r\n\r\n")
				if e.Code != api.CodeUnauthorized {
					t.Errorf("Authorization %q: %+v", shown, e)
				}
			}
		})
	}
}
