package ingress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

const aSandbox = "sb-00000001-0001"

// guest is a fake of one sandbox with servers on ports.
type guest struct {
	servers map[uint16]string // addresses
	err     error             // of all dials
}

func (g *guest) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	switch {
	case g.err != nil:
		return nil, g.err
	case id != aSandbox:
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %q not found", id)
	case g.servers[port] == "":
		return nil, sandbox.Errorf(sandbox.ErrPortClosed, sandbox.ReasonPortRefused, "no server listens on port %d", port)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", g.servers[port])
}

// bench is an ingress with one sandbox. Its client resolves every name to the ingress.
type bench struct {
	*guest
	address string
	client  *http.Client
}

func start(t *testing.T, cfg Config, servers map[uint16]http.Handler) *bench {
	t.Helper()
	b := &bench{guest: &guest{servers: map[uint16]string{}}}
	for port, h := range servers {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		t.Cleanup(s.Close)
		b.servers[port] = s.Listener.Addr().String()
	}
	cfg.Domain = DefaultDomain
	switch cfg.Guard.(type) {
	case nil:
		cfg.Guard = public{}
	case unguarded:
		cfg.Guard = nil
	}
	if cfg.Dialer == nil {
		cfg.Dialer = b.guest
	}
	s := httptest.NewUnstartedServer(New(cfg))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	b.address = s.Listener.Addr().String()
	b.client = b.speaking(t, func(p *http.Protocols) { p.SetHTTP1(true) })
	return b
}

// speaking returns a client for these protocols.
func (b *bench) speaking(t *testing.T, set func(*http.Protocols)) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", b.address)
	}}
	set(tr.Protocols)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func hostOf(port int) string { return fmt.Sprintf("%d-sb000000010001.%s:8889", port, DefaultDomain) }

// get returns status and body.
func (b *bench) get(t *testing.T, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[http.CanonicalHeaderKey(k)] = v
	}
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestARequestArrivesAsItWasSent(t *testing.T) {
	var got *http.Request
	b := start(t, Config{}, map[uint16]http.Handler{8080: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r
		w.Header().Set("Server", "guest")
		w.Header().Set(HeaderError, "forged")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s", r.Method, body)
	})})
	r, _ := http.NewRequest(http.MethodPut, "http://"+hostOf(8080)+"/a%2Fb//c?q=1;2&x=%zz", strings.NewReader("body"))
	r.Header.Set("X-Own", "1")
	r.Header.Set("Authorization", "Bearer the-guests")
	r.Header.Set("Forkd-Access-Token", "secret")
	r.Header.Set("X-Forwarded-Proto", "https") // from a proxy in front, on this host
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusTeapot || string(body) != "PUT body" || resp.Header.Get("Server") != "guest" ||
		resp.Header.Get(HeaderError) != "" {
		t.Errorf("got %s, %v, %q", resp.Status, resp.Header, body)
	}
	if got.Host != hostOf(8080) || got.RequestURI != "/a%2Fb//c?q=1;2&x=%zz" {
		t.Errorf("the guest got %s %s", got.Host, got.RequestURI)
	}
	for name, want := range map[string]string{
		"X-Own": "1", "Authorization": "Bearer the-guests", "Forkd-Access-Token": "", HeaderSandbox: "",
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": hostOf(8080), "X-Forwarded-Proto": "https",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

func TestByHeaders(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{49983: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, r.Header.Get(HeaderPort), r.Header.Get("X-Access-Token"))
	})})
	_, body := b.get(t, "http://localhost:3000/health", http.Header{
		HeaderSandbox: {"sb000000010001"}, HeaderPort: {"49983"}, "X-Access-Token": {"agents"},
	})
	if body != "localhost:3000agents" {
		t.Errorf("got %q", body)
	}
}

// Data of a server arrives immediately, even if the server sends the rest much later.
func TestStreamsAreStreams(t *testing.T) {
	more := make(chan struct{})
	b := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-more
		fmt.Fprint(w, "second")
	})})
	resp, err := b.client.Get("http://" + hostOf(80))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("got %q, %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" {
		t.Errorf("got %q, %v", rest, err)
	}
}

// A WebSocket is an upgraded connection with the Host of plain requests.
func TestAWebSocketIsPassedOn(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Host != hostOf(80) || r.Header.Get("Sec-Websocket-Key") != "key" {
			http.Error(w, fmt.Sprint(r.Host, r.Header), http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
		line, _ := rw.ReadString('\n')
		io.WriteString(c, line)
	})})
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: key\r\nSec-WebSocket-Version: 13\r\n\r\n", hostOf(80))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v, %v", resp, err)
	}
	io.WriteString(c, "frames\n")
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello frames\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// gRPC uses HTTP/2 to the guest as well. Other requests over HTTP/2 use HTTP/1.1 to the guest,
// because its server may support nothing else.
func TestHTTP2(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{50051: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		fmt.Fprint(w, r.Proto, r.Header.Get("Te"))
		w.Header().Set("Grpc-Status", "0")
	})})
	c := b.speaking(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	for kind, want := range map[string]string{"application/grpc+proto": "HTTP/2.0trailers", "text/plain": "HTTP/1.1trailers"} {
		r, _ := http.NewRequest(http.MethodPost, "http://"+hostOf(50051)+"/a.B/C", strings.NewReader("x"))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Te", "trailers")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != want || resp.Trailer.Get("Grpc-Status") != "0" || resp.Proto != "HTTP/2.0" {
			t.Errorf("%s: %q, %v, %s, trailers %v", kind, body, err, resp.Proto, resp.Trailer)
		}
	}
}

func TestWhatTheGuestDoesNotAnswer(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(c, "SSH-2.0-server\r\n")
		c.Close()
	})})
	gone := sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxFailed, "sandbox has failed: out of luck")
	full := sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonDiskNoRoom, "sandbox is paused")
	for name, c := range map[string]struct {
		host    string
		err     error
		status  int
		message string
		port    uint16
		kind    string
	}{
		// E2B's clients parse these two texts
		"no sandbox":    {host: "80-sb000000019999", status: 502, message: "The sandbox was not found", kind: "not_found"},
		"closed port":   {host: "81-sb000000010001", status: 502, message: "The sandbox is running but port is not open", port: 81, kind: "port_closed"},
		"failed":        {host: "80-sb000000010001", err: gone, status: 502, message: "The sandbox was not found", kind: "guest_gone"},
		"paused":        {host: "80-sb000000010001", err: full, status: 507, message: "The sandbox is stalled", kind: "no_space"},
		"no HTTP":       {host: "80-sb000000010001", status: 502, message: "The server in the sandbox closed the connection, or does not speak HTTP", port: 80, kind: "guest_gone"},
		"drained":       {host: "80-sb000000010001", err: sandbox.ErrDraining, status: 503, message: "The sandbox is paused for maintenance", kind: "draining"},
		"shutting down": {host: "80-sb000000010001", err: sandbox.ErrClosing, status: 503, message: "The daemon is shutting down", kind: "closing"},
	} {
		t.Run(name, func(t *testing.T) {
			b.err = c.err
			url := "http://" + c.host + "." + DefaultDomain + "/health"
			resp, body := b.get(t, url, nil)
			var f refusal
			if err := json.Unmarshal([]byte(body), &f); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			if resp.StatusCode != c.status || f.Code != c.status || f.Message != c.message || f.Port != c.port ||
				resp.Header.Get(HeaderError) != c.kind || f.Error == "" || !strings.HasPrefix(f.Sandbox, "sb-00000001-") {
				t.Errorf("got %s, %+v, %v", resp.Status, f, resp.Header)
			}
			if c.port == 81 && !strings.Contains(f.Hint, "server on port 81") {
				t.Errorf("the hint is %q", f.Hint)
			}
			resp, body = b.get(t, url, http.Header{"Accept": {"text/html,*/*"}})
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || !strings.Contains(body, c.message) {
				t.Errorf("a browser got %v, %q", resp.Header, body)
			}
		})
	}
	if resp, body := b.get(t, "http://0-x."+DefaultDomain, nil); resp.StatusCode != 400 || !strings.Contains(body, "1 to 65535") {
		t.Errorf("a bad route: %s, %q", resp.Status, body)
	}
}

// An answer that breaks off must not look complete.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "some")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})})
	resp, err := b.client.Get("http://" + hostOf(80))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got all of %q", body)
	}
}

type private map[string]string

func (p private) PortAccess(id string, port uint16) (sandbox.PortAccess, error) {
	return sandbox.PortAccess{Public: port == 49983, Token: p[id]}, nil
}

// public admits every request.
type public struct{}

func (public) PortAccess(string, uint16) (sandbox.PortAccess, error) {
	return sandbox.PortAccess{Public: true}, nil
}

// broken knows no sandbox.
type broken struct{}

func (broken) PortAccess(string, uint16) (sandbox.PortAccess, error) {
	return sandbox.PortAccess{}, errors.New("the list cannot be read")
}

// unguarded is a Config without a Guard.
type unguarded struct{ Guard }

// A sandbox is public only if the guard says so.
func TestWhatIsNotPublicIsClosed(t *testing.T) {
	reached := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "in") })
	for name, c := range map[string]struct {
		guard  Guard
		status int
	}{
		"no guard":             {unguarded{}, 403},
		"no rule":              {private{}, 403},
		"a guard that fails":   {broken{}, 502},
		"a public sandbox":     {public{}, 200},
		"a sandbox's own rule": {private{aSandbox: "token"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Config{Guard: c.guard}, map[uint16]http.Handler{80: reached})
			for _, header := range []http.Header{{}, {"Forkd-Access-Token": {""}}, {"Authorization": {"Bearer "}}, {"X-Access-Token": {"x"}}} {
				if resp, body := b.get(t, "http://"+hostOf(80), header); resp.StatusCode != c.status {
					t.Errorf("%v: %s, %s", header, resp.Status, body)
				}
			}
		})
	}
}

func TestAPrivateSandbox(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "in") })
	b := start(t, Config{Guard: private{aSandbox: "token"}}, map[uint16]http.Handler{80: ok, 49983: ok})
	for _, c := range []struct {
		port   int
		name   string
		value  string
		status int
	}{
		{80, "X-None", "", 403}, {80, "Forkd-Access-Token", "wrong", 403}, {80, "Authorization", "Bearer wrong", 403},
		{80, "Authorization", "Basic token", 403}, {80, "Authorization", "Bearer token", 200}, {80, "Authorization", "bearer token", 200},
		{80, "Forkd-Access-Token", "token", 200}, {80, "E2b-Traffic-Access-Token", "token", 200},
		{80, "X-Access-Token", "token", 200}, {49983, "X-None", "", 200},
	} {
		resp, body := b.get(t, "http://"+hostOf(c.port), http.Header{c.name: {c.value}})
		if resp.StatusCode != c.status {
			t.Errorf("port %d, %s %q: %s, %s", c.port, c.name, c.value, resp.Status, body)
		}
	}
}

// A refusal is E2B's, word for word. A person with a browser gets advice.
func TestARefusalOfAPrivateSandboxIsE2Bs(t *testing.T) {
	b := start(t, Config{Guard: private{aSandbox: "token"}}, nil)
	const begin, end = `{"sandboxId":"sb-00000001-0001","message":"Sandbox is secured with traffic access token. `, `","code":403}` + "\n"
	for _, c := range []struct{ name, value, says string }{
		{"X-None", "x", "Token header 'e2b-traffic-access-token' is missing"},
		{"Authorization", "Bearer the-guests", "Token header 'e2b-traffic-access-token' is missing"},
		{"E2b-Traffic-Access-Token", "x", "Provided token in header 'e2b-traffic-access-token' is invalid"},
	} {
		resp, body := b.get(t, "http://"+hostOf(80), http.Header{c.name: {c.value}})
		if resp.StatusCode != 403 || body != begin+c.says+end || resp.Header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("%s: %s, %v, %s", c.name, resp.Status, resp.Header, body)
		}
	}
	_, page := b.get(t, "http://"+hostOf(80), http.Header{"Accept": {"text/html"}})
	if !strings.Contains(page, "traffic_token") {
		t.Errorf("the page is %s", page)
	}
}

// The token is for the daemon. The server in the guest gets its own Authorization, but not the
// token.
func TestATokenStaysHere(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"), r.Header.Get("Forkd-Access-Token"), r.Header.Get("E2b-Traffic-Access-Token"))
	})
	b := start(t, Config{Guard: private{aSandbox: "token"}}, map[uint16]http.Handler{80: echo})
	for want, header := range map[string]http.Header{
		"":           {"Authorization": {"Bearer token"}},
		"Bearer own": {"Authorization": {"Bearer own"}, "E2b-Traffic-Access-Token": {"token"}, "Forkd-Access-Token": {"token"}},
	} {
		if resp, body := b.get(t, "http://"+hostOf(80), header); resp.StatusCode != 200 || body != want {
			t.Errorf("%v: %s, %q", header, resp.Status, body)
		}
	}
}

// stalled is a connection to a guest paused for lack of disk space after it has received a request.
type stalled struct{ net.Conn }

func (stalled) Read([]byte) (int, error) {
	return 0, sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonDiskNoRoom, "sandbox is paused: no room")
}

type stalledGuest struct{}

func (stalledGuest) DialPort(context.Context, string, uint16) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }() // ends with near
	return stalled{near}, nil
}

// A request in progress gets an error when its sandbox is paused for lack of space, and so do later
// requests.
func TestARequestUnderWayWhenThereIsNoRoom(t *testing.T) {
	b := start(t, Config{Dialer: stalledGuest{}}, nil)
	resp, body := b.get(t, "http://"+hostOf(80), nil)
	if resp.StatusCode != 507 || !strings.Contains(body, "paused: no room") {
		t.Errorf("got %s, %s", resp.Status, body)
	}
}

func TestTrafficWakesASandbox(t *testing.T) {
	asleep := errors.New("asleep")
	awake := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "awake")
	})})
	g := &guest{servers: awake.servers, err: asleep}
	b := start(t, Config{Dialer: g, Wake: func(_ context.Context, id string, cause error) (bool, error) {
		if id != aSandbox || !errors.Is(cause, asleep) {
			return false, nil
		}
		g.err = nil
		return true, nil
	}}, nil)
	if resp, body := b.get(t, "http://"+hostOf(80), nil); resp.StatusCode != 200 || body != "awake" {
		t.Errorf("got %s, %q", resp.Status, body)
	}
	g.err = sandbox.ErrGuestGone
	if resp, _ := b.get(t, "http://"+hostOf(80), nil); resp.StatusCode != 502 {
		t.Errorf("one that cannot be woken: %s", resp.Status)
	}
}

func TestOnlyThisHostIsBelieved(t *testing.T) {
	for remote, want := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "@": true, "": true, "192.0.2.1:80": false, "[::ffff:192.0.2.1]:80": false,
		"[::ffff:127.0.0.1]:80": true,
	} {
		if fromThisHost(remote) != want {
			t.Errorf("%q: want %v", remote, want)
		}
	}
}

// A caller that has determined the port gets refusals with E2B's fields and the client's form of
// the ID.
func TestAPortThatAnotherFound(t *testing.T) {
	b := start(t, Config{}, map[uint16]http.Handler{80: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "served")
	})})
	h := New(Config{Domain: DefaultDomain, Dialer: b.guest, Guard: public{}})
	for port, want := range map[uint16]string{
		80: "served",
		81: `{"sandboxId":"sb000000010001","message":"The sandbox is running but port is not open","port":81,"code":502}` + "\n",
	} {
		w := httptest.NewRecorder()
		h.ServePort(w, httptest.NewRequest(http.MethodGet, "/", nil), aSandbox, "sb000000010001", port, false)
		if w.Body.String() != want {
			t.Errorf("port %d: %s", port, w.Body)
		}
	}
}

// If a sandbox ends while a server in it has a request, the error names the sandbox as ended, with
// the reason.
func TestASandboxThatEndsDuringARequest(t *testing.T) {
	why := sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxEnded, "sandbox sb-00000001-0001 ended: killed")
	b := start(t, Config{Ended: func(id string) error { return why }},
		map[uint16]http.Handler{80: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })})
	resp, body := b.get(t, "http://80-sb000000010001."+DefaultDomain, nil)
	var f refusal
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if resp.StatusCode != 502 || f.Message != "The sandbox was not found" || !strings.Contains(f.Error, "ended: killed") ||
		resp.Header.Get(HeaderError) != "guest_gone" {
		t.Errorf("got %s, %+v, %v", resp.Status, f, resp.Header)
	}
}

// A request that a pause or a rollback cut off has its own error: the sandbox has not ended, and the
// server may have handled the request. Requests that change something are not repeated.
func TestARequestThatAPauseCutsOff(t *testing.T) {
	for _, reason := range []sandbox.Reason{sandbox.ReasonSandboxPaused, sandbox.ReasonSandboxRolledBack} {
		var served, woken atomic.Int32
		b := start(t, Config{
			Ended: func(string) error {
				return sandbox.Errorf(sandbox.ErrGuestGone, reason, "sandbox sb-00000001-0001 was stopped")
			},
			Wake: func(context.Context, string, error) (bool, error) { woken.Add(1); return true, nil },
		}, map[uint16]http.Handler{80: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served.Add(1)
			panic(http.ErrAbortHandler)
		})})
		resp, err := b.client.Post("http://"+hostOf(80), "text/plain", strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		var f refusal
		err = json.NewDecoder(resp.Body).Decode(&f)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 502 || f.Message != "The sandbox was paused or rolled back during the request" ||
			!strings.Contains(f.Error, "was stopped; the server in it may or may not have handled") ||
			resp.Header.Get(HeaderError) != "guest_gone" || f.Port != 80 {
			t.Errorf("%s: %s, %+v, %v", reason, resp.Status, f, err)
		}
		if served.Load() != 1 || woken.Load() != 0 {
			t.Errorf("%s: sent %d times, woken %d times", reason, served.Load(), woken.Load())
		}
	}
}
