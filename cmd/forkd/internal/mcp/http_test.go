package mcp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/client"
)

const token = "0123456789abcdef0123456789abcdef"

// listen serves HTTP, and returns the URL and a function that ends the server.
func (d *fake) listen(t *testing.T, change func(*Options)) (string, func()) {
	t.Helper()
	opt := d.options()
	if change != nil {
		change(&opt)
	}
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, l, HTTPOptions{Token: token, Hosts: []string{"proxy.example"}}) }()
	end := func() {
		stop()
		if err, ok := <-ended; ok && err != nil {
			t.Error(err)
		}
		close(ended)
	}
	var done bool
	once := func() {
		if !done {
			done = true
			end()
		}
	}
	t.Cleanup(once)
	return "http://" + l.Addr().String() + Path, once
}

// over connects a client over HTTP. An old client knows the older version only.
func over(t *testing.T, url string, old bool) *user {
	t.Helper()
	u := &user{t: t, told: make(chan *sdk.ProgressNotificationParams, 1000)}
	transport := &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}
	opt := &sdk.ClientSessionOptions{}
	if old {
		opt.ProtocolVersion = versions[1]
	}
	var err error
	if u.ClientSession, err = newClient(u.told).Connect(t.Context(), transport, opt); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestHTTPSessionsEndWithTheirClients(t *testing.T) {
	d := startFake(t)
	url, _ := d.listen(t, nil)
	a, b := over(t, url, true), over(t, url, true)
	if got := a.InitializeResult().ProtocolVersion; got != versions[1] {
		t.Errorf("the version is %s", got)
	}
	mine, other := a.one(), b.one()
	a.Close() // sends DELETE
	c := d.client(t)
	eventually(t, "a session's sandbox ends with it", func() bool {
		_, err := c.Sandbox(t.Context(), mine)
		return client.IsNotFound(err)
	})
	ok[sandboxInfo](b, "get_sandbox", map[string]any{"sandbox_id": other})
	b.Close()
}

func TestHTTPWithoutSessions(t *testing.T) {
	d := startFake(t)
	url, end := d.listen(t, nil)
	u := over(t, url, false)
	if got := u.InitializeResult().ProtocolVersion; got != versions[0] {
		t.Errorf("the version is %s", got)
	}
	id := u.one()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := u.CallTool(ctx, &sdk.CallToolParams{Name: "exec_command", Arguments: map[string]any{"sandbox_id": id, "args": []string{"wait"}}}); err == nil {
		t.Error("a cancelled call succeeded")
	}
	u.Close()
	again := over(t, url, false) // the version has no sessions: it is the same one
	if got := ok[sandboxInfo](again, "get_sandbox", map[string]any{"sandbox_id": id}); !got.OfSession {
		t.Errorf("it is %+v", got)
	}
	again.Close()
	end()
	if left := d.engine.List(); len(left) != 0 {
		t.Errorf("left are %d sandboxes", len(left))
	}
}

// Clients without sessions share one for each path: each path has sandboxes and limits of its own.
func TestPathsHaveSessionsOfTheirOwn(t *testing.T) {
	d := startFake(t)
	url, end := d.listen(t, func(o *Options) { o.MaxSandboxes = 1 })
	a, b, again := over(t, url+"/alice", false), over(t, url+"/bob", false), over(t, url+"/alice", false)
	mine, other := a.one(), b.one() // one would be over the limit in a shared session
	if got := ok[sandboxInfo](again, "get_sandbox", map[string]any{"sandbox_id": mine}); !got.OfSession {
		t.Errorf("alice's second client sees %+v", got)
	}
	if got := ok[sandboxInfo](a, "get_sandbox", map[string]any{"sandbox_id": other}); got.OfSession {
		t.Errorf("bob's sandbox is alice's: %+v", got)
	}
	for _, path := range []string{"/Alice", "/", "/a/b", "/..", "/" + strings.Repeat("x", 33), "x"} {
		if code := post(t, url+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	for n := range maxShared - 2 {
		if code := post(t, fmt.Sprintf("%s/n%d", url, n)); code == http.StatusTooManyRequests {
			t.Fatalf("name %d is refused", n)
		}
	}
	if code := post(t, url+"/more"); code != http.StatusTooManyRequests {
		t.Errorf("one name too many: %d", code)
	}
	ok[sandboxInfo](b, "get_sandbox", map[string]any{"sandbox_id": other})
	a.Close()
	b.Close()
	again.Close()
	end()
	if left := d.engine.List(); len(left) != 0 {
		t.Errorf("left are %d sandboxes", len(left))
	}
}

// post sends a request of a client without a session, and returns the status.
func post(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Protocol-Version", versions[0])
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := (&http.Client{Transport: bearer(token)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestAnIdleHTTPSessionEnds(t *testing.T) {
	d := startFake(t)
	url, _ := d.listen(t, func(o *Options) { o.Idle = time.Second; o.Lease = MinLease })
	old, late := over(t, url, true), over(t, url, false)
	ids := []string{old.one(), late.one()}
	c := d.client(t)
	for _, id := range ids {
		eventually(t, "an idle session's sandbox ends", func() bool {
			_, err := c.Sandbox(t.Context(), id)
			return client.IsNotFound(err)
		})
	}
}

func TestTheGuard(t *testing.T) {
	url, _ := startFake(t).listen(t, nil)
	for _, c := range []struct {
		name, host, origin, auth string
		want                     int
	}{
		{"no token", "", "", "", http.StatusUnauthorized},
		{"a wrong token", "", "", "Bearer " + strings.Repeat("0", 32), http.StatusUnauthorized},
		{"a prefix of the token", "", "", "Bearer " + token[:31], http.StatusUnauthorized},
		{"another scheme", "", "", "Basic " + token, http.StatusUnauthorized},
		{"another host", "evil.example", "", "Bearer " + token, http.StatusForbidden},
		{"a host like ours", "localhost.evil.example", "", "Bearer " + token, http.StatusForbidden},
		{"another address", "10.0.0.1:80", "", "Bearer " + token, http.StatusForbidden},
		{"another origin", "", "http://evil.example", "Bearer " + token, http.StatusForbidden},
		{"an opaque origin", "", "null", "Bearer " + token, http.StatusForbidden},
		{"a file's origin", "", "file://localhost", "Bearer " + token, http.StatusForbidden},
		{"our own origin", "", "http://localhost:6274", "Bearer " + token, http.StatusOK},
		{"no origin", "localhost", "", "bearer " + token, http.StatusOK},
	} {
		body := strings.NewReader(strings.Split(hello, "\n")[0])
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if r.Host = c.host; c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.name, resp.Status, c.want)
		}
	}
}

func TestCheckListen(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:8890", "localhost:1", "127.0.0.2:9"} {
		if err := CheckListen(address); err != nil {
			t.Error(err)
		}
	}
	for _, address := range []string{"0.0.0.0:80", ":80", "10.0.0.1:80", "[::]:80", "example.org:80", "127.0.0.1", "127.0.0.1:"} {
		if CheckListen(address) == nil {
			t.Errorf("%s was taken", address)
		}
	}
}
