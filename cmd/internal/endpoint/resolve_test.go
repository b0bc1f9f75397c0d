//go:build linux

package endpoint

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// notes collects what a person would be told.
type notes []string

func (n *notes) add(line string) { *n = append(*n, line) }

func testPaths(t *testing.T) Paths {
	t.Helper()
	dir, err := os.MkdirTemp("", "forkd-ep-") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Paths{Data: dir + "/data", Run: dir, State: dir + "/state"}
}

// serveHealth answers like a daemon on the socket.
func serveHealth(t *testing.T, p Paths) {
	t.Helper()
	l, err := net.Listen("unix", p.Socket())
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"ok":true}`)) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
}

func TestNamedDaemonIsNotQuestioned(t *testing.T) {
	var told notes
	e, err := Resolve(t.Context(), testPaths(t), Options{URL: "http://x:1", Token: "t", Notice: told.add, Progress: told.add})
	if err != nil || e != (Endpoint{URL: "http://x:1", Token: "t", Where: Named}) || len(told) != 0 {
		t.Errorf("got %+v, %v, told %q", e, err, told)
	}
}

func TestRunningDaemonOfThisHostIsUsedAndToldOnce(t *testing.T) {
	p := testPaths(t)
	serveHealth(t, p)
	var told notes
	for range 2 {
		e, err := Resolve(t.Context(), p, Options{Notice: told.add, Progress: told.add})
		if err != nil || e.Where != Host || e.URL != p.SocketURL() {
			t.Fatalf("got %+v, %v", e, err)
		}
	}
	if len(told) != 1 {
		t.Errorf("told %q, want one line", told)
	}
	if err := os.WriteFile(filepath.Join(p.State, "where"), []byte("machine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(t.Context(), p, Options{Notice: told.add, Progress: told.add}); err != nil || len(told) != 2 {
		t.Errorf("a change of place: told %q, %v", told, err)
	}
}

func TestNothingIsStartedUnlessAllowed(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir()) // no machine there
	for _, where := range []Where{Host, Machine} {
		_, err := Resolve(t.Context(), testPaths(t), Options{Force: where, Notice: func(string) {}, Progress: func(string) { t.Error("something was started") }})
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestDaemonThatDiesIsAClearError(t *testing.T) {
	// The test binary stands in for forkd: it does not know `serve` and ends.
	p := testPaths(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(t.Context(), p, Options{Force: Host, Start: true, Forkd: self, Notice: func(string) {}, Progress: func(string) {}})
	var e *client.Error
	if !errors.As(err, &e) || hints.Of(err) == "" || !client.IsUnreachable(err) {
		t.Errorf("got %v", err)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Stderr.WriteString("cannot serve\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
