package hostileagent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
)

// redirecting is an agent that redirects each request to an address where it would succeed.
type redirecting struct {
	status   int
	location string

	mu       sync.Mutex
	followed []string // requests to that address
}

const again = "/again"

// ServeHTTP implements http.Handler.
func (a *redirecting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if !strings.HasSuffix(r.URL.Path, again) {
		w.Header().Set("Location", a.location)
		w.WriteHeader(a.status)
		return
	}
	a.mu.Lock()
	a.followed = append(a.followed, r.Method+" "+r.Host+r.URL.Path)
	a.mu.Unlock()
	kind := r.Header.Get("Content-Type")
	w.Header().Set("Content-Type", kind)
	if strings.HasPrefix(kind, "application/connect+") {
		_, _ = w.Write(append(append(started(), ended("exit status 0")...), envelope(2, raw("{}"))...))
	}
}

// seen returns the requests that followed a redirect.
func (a *redirecting) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.followed
}

// serve serves the agent on a Unix socket.
func (a *redirecting) serve(t *testing.T) agentclient.DialFunc {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(a)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
}

// redirectCalls returns all calls that use HTTP with an agent.
func redirectCalls(t *testing.T) map[string]func(ctx context.Context, dial agentclient.DialFunc) error {
	all := map[string]func(ctx context.Context, dial agentclient.DialFunc) error{
		"metrics": func(ctx context.Context, dial agentclient.DialFunc) error { return newDaemon(t, dial).measure(ctx) },
	}
	for who, run := range execClients {
		all["exec by the "+who] = func(ctx context.Context, dial agentclient.DialFunc) error { return run(ctx, t, dial) }
	}
	for _, calls := range []map[string]call{unaryCalls, streamCalls, plainCalls} {
		for name, c := range calls {
			all[name] = func(ctx context.Context, dial agentclient.DialFunc) error {
				client := agentclient.New(dial, agentclient.WithToken("secret"))
				defer client.Close()
				return c(ctx, client)
			}
		}
	}
	return all
}

// redirects returns all kinds of redirects, each to the same host and to another.
func redirects() (all []*redirecting) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{again, "http://agent" + again, "http://other.example" + again} {
			all = append(all, &redirecting{status: status, location: to})
		}
	}
	return all
}

// With redirects the guest could choose the host's next request, which may carry a token and a new
// identity.
func TestNoRedirectIsFollowed(t *testing.T) {
	for _, a := range redirects() {
		dial := a.serve(t)
		for name, c := range redirectCalls(t) {
			t.Run(fmt.Sprintf("%d to %s/%s", a.status, a.location, name), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := c(ctx, dial)
				if err == nil || ctx.Err() != nil {
					t.Errorf("the call ends with %v", err)
				}
				if strings.HasPrefix(name, "exec") || name == "ping" || name == "watch" || name == "download" {
					if err == nil || !strings.Contains(err.Error(), "redirect") {
						t.Errorf("%v does not name the redirect", err)
					}
				}
			})
		}
		if seen := a.seen(); len(seen) > 0 {
			t.Errorf("%d to %s: followed by %q", a.status, a.location, seen)
		}
	}
}

// TestARedirectCanBeFollowed shows that TestNoRedirectIsFollowed would detect a client that follows
// redirects.
func TestARedirectCanBeFollowed(t *testing.T) {
	a := &redirecting{status: 307, location: "http://other.example" + again}
	dial := a.serve(t)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	resp, err := c.Post("http://agent"+agentv1connect.AgentPingProcedure, unaryType, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if seen := a.seen(); resp.StatusCode != 200 || len(seen) != 1 || !strings.HasPrefix(seen[0], "POST other.example") {
		t.Errorf("%s, followed by %q", resp.Status, seen)
	}
}

// A client of the API that follows redirects would send its key to a route chosen by the guest.
func TestRedirectsOfAgentsAreNotPassedOn(t *testing.T) {
	for _, a := range redirects() {
		d := newDaemon(t, a.serve(t))
		native := "/v1/sandboxes/" + d.id + "/agent/"
		byPort := []string{"E2b-Sandbox-Id", sandbox.DNSID(d.id), "E2b-Sandbox-Port", "49983", "X-Access-Token", "secret"}
		for path, headers := range map[string][]string{
			native + "files?path=/x": {"Authorization", "Bearer " + daemonToken},
			native + "health":        {"Authorization", "Bearer " + daemonToken},
			"/files?path=/x":         byPort,
			"/envs":                  byPort,
		} {
			w := d.get(t.Context(), path, headers...)
			if to := w.Header().Get("Location"); w.Code != http.StatusBadGateway || to != "" {
				t.Errorf("%d to %s: %s is answered %d, Location %q", a.status, a.location, path, w.Code, to)
			}
		}
	}
}
