//go:build linux

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// notes collects messages for the user.
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
	// The test binary takes the place of forkd: it does not know `serve` and ends.
	p := testPaths(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(t.Context(), p, Options{Force: Host, Anyway: true, Start: true, Forkd: self, Notice: func(string) {}, Progress: func(string) {}})
	var e *client.Error
	if !errors.As(err, &e) || hints.Of(err) == "" || !client.IsUnreachable(err) {
		t.Errorf("got %v", err)
	}
}

func TestNoDaemonIsStartedWhereVMsDoNotRun(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // an interrupted measurement counts as an unusable KVM
	_, err := Resolve(ctx, testPaths(t), Options{Force: Host, Start: true, Forkd: "/nowhere", Notice: func(string) {},
		Progress: func(string) { t.Error("something was started") }})
	var e *client.Error
	if !errors.As(err, &e) || e.Code != api.CodeUnsupported || !strings.Contains(hints.Of(err), "--force-host") {
		t.Errorf("got %v", err)
	}
}

// fakeMachine makes a machine that appears to run: this process, with a daemon at the port.
func fakeMachine(t *testing.T, name, token string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
	start, err := hostproc.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	state := fmt.Sprintf(`{"pid":%d,"start_time":%d,"boot_id":%q,"api_port":%d,"agent_port":%d}`,
		os.Getpid(), start, hostproc.BootID(), port, port)
	dir := filepath.Join(os.Getenv("XDG_DATA_HOME"), "forkd", "machine", name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/state.json", []byte(state), 0o600),
		os.WriteFile(dir+"/token", []byte(token), 0o600)); err != nil {
		t.Fatal(err)
	}
	return "http://" + l.Addr().String()
}

func TestTheMachineThatIsNamedIsUsed(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	ci, other := fakeMachine(t, "ci", "of-ci"), fakeMachine(t, "default", "of-default")
	for name, row := range map[string]struct {
		flags        Flags
		env, envURL  string
		url, token   string
		told, failed string
	}{
		"by the flag":                     {flags: Flags{MachineName: "ci"}, url: ci, token: "of-ci", told: "in machine ci"},
		"by the flag, not the address":    {flags: Flags{MachineName: "ci"}, envURL: "http://x:1", url: ci, token: "of-ci"},
		"by the environment":              {env: "ci", url: ci, token: "of-ci"},
		"the flag before it":              {flags: Flags{MachineName: "default"}, env: "ci", url: other, token: "of-default"},
		"the name holds for --machine":    {flags: Flags{Machine: true}, env: "ci", url: ci, token: "of-ci"},
		"none is the default one":         {flags: Flags{Machine: true}, url: other, token: "of-default", told: "in the machine"},
		"an address before its name":      {flags: Flags{URL: "http://x:1"}, env: "ci", url: "http://x:1"},
		"two of the environment":          {env: "ci", envURL: "http://x:1", failed: "name two daemons"},
		"a slip makes no machine":         {flags: Flags{MachineName: "cj"}, failed: "machine cj not found"},
		"a name that no machine can have": {flags: Flags{MachineName: "../ci"}, failed: "machine name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FORKD_MACHINE", row.env)
			t.Setenv("FORKD_URL", row.envURL)
			var told notes
			opt, err := row.flags.complete(Options{Start: true, Notice: told.add, Progress: told.add})
			var e Endpoint
			if err == nil {
				e, err = Resolve(t.Context(), testPaths(t), opt)
			}
			if row.failed != "" {
				if err == nil || !strings.Contains(err.Error(), row.failed) {
					t.Errorf("got %+v, %v", e, err)
				}
				return
			}
			if err != nil || e.URL != row.url || e.Token != row.token || !strings.Contains(strings.Join(told, "\n"), row.told) {
				t.Errorf("got %+v, %v, told %q", e, err, told)
			}
		})
	}
	if made, _ := filepath.Glob(os.Getenv("XDG_DATA_HOME") + "/forkd/machine/*"); len(made) != 2 {
		t.Errorf("there are machines %q", made)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Stderr.WriteString("cannot serve\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
