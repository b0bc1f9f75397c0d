package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Profiles are on the Unix socket, for the operator. On TCP even the operator's token finds no such path.
func TestProfilesAreForTheOperatorOnTheSocket(t *testing.T) {
	b := newBench(t)
	tenant := b.newKey(keys.Spec{Name: "a", Tenant: "acme", Scopes: principal.All})
	reader := b.newKey(keys.Spec{Name: "r", Scopes: principal.Read})
	path := filepath.Join(t.TempDir(), "s")
	binding := listen.Binding{Token: token, Keys: b.keys}
	runOn(t, b.server, binding, "unix://"+path)
	tcp := runOn(t, b.server, binding, "tcp://127.0.0.1:0")
	for _, c := range []struct {
		name, network, address, key, path string
		status                            int
		says                              string
	}{
		{"the index", "unix", path, "", "/debug/pprof/", 200, "goroutine"},
		{"stacks", "unix", path, "", "/debug/pprof/goroutine?debug=2", 200, "TestProfilesAreForTheOperatorOnTheSocket"},
		{"a heap profile", "unix", path, "", "/debug/pprof/heap", 200, "\x1f\x8b"},
		{"a CPU profile", "unix", path, token, "/debug/pprof/profile?seconds=1", 200, "\x1f\x8b"},
		{"a trace", "unix", path, "", "/debug/pprof/trace?seconds=0.1", 200, "go 1."},
		{"no such profile", "unix", path, "", "/debug/pprof/none", 404, "Unknown profile"},
		{"a year", "unix", path, "", "/debug/pprof/profile?seconds=31536000", 400, "want 0 to 300"},
		{"no number", "unix", path, "", "/debug/pprof/profile?seconds=x", 400, "want 0 to 300"},
		{"less than 0", "unix", path, "", "/debug/pprof/trace?seconds=-1", 400, "want 0 to 300"},
		{"a tenant's key", "unix", path, tenant, "/debug/pprof/heap", 403, "only the operator"},
		{"an operator's key for reading", "unix", path, reader, "/debug/pprof/heap", 403, "only the operator"},
		{"a wrong token", "unix", path, strings.Repeat("0", 32), "/debug/pprof/heap", 401, "token"},
		{"another method", "unix", path, "", "/debug/pprof/heap", 405, ""},
		{"the operator's token on TCP", "tcp", tcp, token, "/debug/pprof/heap", 404, "no such path"},
		{"nobody on TCP", "tcp", tcp, "", "/debug/pprof/heap", 401, "token"},
		{"a path around the check", "tcp", tcp, token, "/x/../debug/pprof/heap", 400, "shortest form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			method := http.MethodGet
			if c.status == http.StatusMethodNotAllowed {
				method = http.MethodDelete
			}
			status, body := request(t, c.network, c.address, method, c.path, c.key)
			if status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("got %d %.200q, want %d with %q", status, body, c.status, c.says)
			}
		})
	}
}

// runOn serves an address of a binding. It returns the host and port of a TCP address.
func runOn(t *testing.T, s *httpapi.Server, b listen.Binding, address string) string {
	t.Helper()
	l, err := b.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{l}, 0) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return l.Addr().String()
}

func request(t *testing.T, network, address, method, path, key string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://forkd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(key, "e2b_"):
		r.Header.Set(api.HeaderKey, key)
	case key != "":
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := (&http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
