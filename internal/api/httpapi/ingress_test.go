package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/api/listen"
)

// withIngress returns a server over the bench's engine. Its guests have an HTTP server on port 80.
func (b *bench) withIngress(t *testing.T) *httpapi.Server {
	b.engine.Ports = map[uint16]func(net.Conn){80: func(c net.Conn) {
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		line, _, _ := strings.Cut(string(buf[:n]), "\r\n")
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(line), line)
	}}
	return httpapi.New(httpapi.Options{
		Engine: fakeengine.Roles(b.engine), Images: b.images, Version: api.VersionInfo{Version: "1.2.3"},
		Audit: httpapi.NewAudit(b.audit, func() time.Time { return b.engine.Now }),
		Ingress: ingress.New(ingress.Config{
			Domain: ingress.DefaultDomain, Dialer: b.engine, Guard: fakeengine.Guard{Of: b.engine.Engine},
		}),
	})
}

// A sandbox's host name leads to no route of the API, and the API requires its token. Neither gives
// access to the other.
func TestSandboxesAndTheAPIAreApart(t *testing.T) {
	b := newBench(t)
	b.fork("1")
	b.audit.Reset()
	h := b.withIngress(t).Handler(auth.Access{Token: token})
	get := func(host, path, auth string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const of = "80-sb000000010001." + ingress.DefaultDomain
	for _, path := range []string{"/v1/sandboxes", "/healthz", "/openapi.json", "/x/../y"} {
		if w := get(of, path, ""); w.Code != 200 || w.Body.String() != "GET "+path+" HTTP/1.1" {
			t.Errorf("%s: %d, %q", path, w.Code, w.Body)
		}
	}
	if !strings.Contains(b.audit.String(), `"principal":"ingress","anonymous":true,"source":"192.0.2.1","sandbox":"sb-00000001-0001"`) {
		t.Errorf("the audit log has %s", b.audit)
	}
	for _, host := range []string{"127.0.0.1:8889", ingress.DefaultDomain, "api." + ingress.DefaultDomain, "80-sb000000010001.evil.test"} {
		wantError(t, get(host, "/v1/sandboxes", ""), api.CodeUnauthorized)
		if w := get(host, "/v1/sandboxes", "Bearer "+token); w.Code != 200 {
			t.Errorf("%s with the token: %d", host, w.Code)
		}
	}
	if w := get("80-sb000000019999."+ingress.DefaultDomain, "/", ""); w.Code != 502 {
		t.Errorf("no sandbox: %d", w.Code)
	}
}

// The daemon's own listener accepts HTTP/2 without TLS, for sandboxes only.
func TestHTTP2IsForSandboxes(t *testing.T) {
	b := newBench(t)
	b.fork("1")
	s := b.withIngress(t)
	l, err := listen.Listen(t.Context(), "tcp://127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{l}, time.Second) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	for host, want := range map[string]string{
		"80-sb000000010001." + ingress.DefaultDomain: "GET / HTTP/1.1", "": "HTTP/1.1",
	} {
		r, _ := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+"/", nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.Proto != "HTTP/2.0" || !strings.Contains(string(body), want) || (resp.StatusCode == 505) != (host == "") {
			t.Errorf("%s: %s %s, %q", host, resp.Proto, resp.Status, body)
		}
	}
}

// A private sandbox's token is sent to its creator and to clients that request the sandbox, and is
// in no list. Without the token its ports are open to the API only.
func TestPrivatePorts(t *testing.T) {
	b := newBench(t)
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","private_ports":true}`), 201)[0]
	if !sb.PrivatePorts || len(sb.TrafficToken) != 64 {
		t.Fatalf("got %+v", sb)
	}
	if got := into[api.SandboxInfo](t, b.do("GET", "/v1/sandboxes/"+sb.ID, ""), 200); got.TrafficToken != sb.TrafficToken {
		t.Errorf("asked for, it says %+v", got)
	}
	if w := b.do("GET", "/v1/sandboxes", ""); strings.Contains(w.Body.String(), sb.TrafficToken) ||
		!strings.Contains(w.Body.String(), `"private_ports":true`) {
		t.Errorf("the list is %s", w.Body)
	}
	branch := into[api.BranchResult](t, b.do("POST", "/v1/sandboxes/"+sb.ID+"/branch", `{"n":1}`), 201)
	if child := branch.Children[0]; len(child.TrafficToken) != 64 || child.TrafficToken == sb.TrafficToken {
		t.Errorf("a child is %+v", child)
	}
	if strings.Contains(b.audit.String(), sb.TrafficToken) {
		t.Error("the audit log has the token")
	}
	h := b.withIngress(t).Handler(auth.Access{Token: token})
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"nothing":        {"X-None", "", 403},
		"the API's":      {"Authorization", "Bearer " + token, 403},
		"of another":     {"Authorization", "Bearer " + branch.Children[0].TrafficToken, 403},
		"as a bearer":    {"Authorization", "Bearer " + sb.TrafficToken, 200},
		"E2B's header":   {"E2b-Traffic-Access-Token", sb.TrafficToken, 200},
		"header of ours": {"Forkd-Access-Token", sb.TrafficToken, 200},
	} {
		for _, byName := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if r.Host = "127.0.0.1:8889"; byName {
				r.Host = "80-" + sb.DNSID + "." + ingress.DefaultDomain
			} else {
				r.Header.Set(ingress.HeaderSandbox, sb.DNSID)
				r.Header.Set(ingress.HeaderPort, "80")
			}
			r.Header.Set(c.header, c.value)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != c.status {
				t.Errorf("%s, by name %v: %d, %s", name, byName, w.Code, w.Body)
			}
		}
	}
	// its token opens no route of the API
	r := httptest.NewRequest(http.MethodGet, "/v1/sandboxes", nil)
	r.Host = "127.0.0.1:8889"
	r.Header.Set("Authorization", "Bearer "+sb.TrafficToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	wantError(t, w, api.CodeUnauthorized)
}

func TestSandboxesHaveASecondName(t *testing.T) {
	b := newBench(t)
	sb := b.fork("1")[0]
	if sb.DNSID != "sb000000010001" {
		t.Fatalf("its other name is %q", sb.DNSID)
	}
	if got := into[api.SandboxInfo](t, b.do("GET", "/v1/sandboxes/"+sb.DNSID, ""), 200); got.ID != sb.ID {
		t.Errorf("got %+v", got)
	}
	if got := into[api.EvalResponse](t, b.do("POST", "/v1/sandboxes/"+sb.DNSID+"/eval", `{"code":"index"}`), 200); *got.Result != "1" {
		t.Errorf("got %+v", got)
	}
	if got := into[[]api.Receipt](t, b.do("GET", "/v1/receipts?sandbox="+sb.DNSID, ""), 200); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
	if w := b.do("DELETE", "/v1/sandboxes/"+sb.DNSID, ""); w.Code != 204 {
		t.Errorf("status is %d", w.Code)
	}
}

func TestAPortIsNoPlainRequest(t *testing.T) {
	b := newBench(t)
	b.fork("1")
	e := wantError(t, b.do("GET", "/v1/sandboxes/sb-00000001-0001/ports/80/connect", ""), api.CodeInvalid)
	if !strings.Contains(e.Message, "Upgrade: forkd-tcp") {
		t.Errorf("got %+v", e)
	}
	for _, port := range []string{"0", "65536", "123456", "x", "-1"} {
		wantError(t, b.do("GET", "/v1/sandboxes/sb-00000001-0001/ports/"+port+"/connect", ""), api.CodeInvalid)
	}
}

// A broken answer of a server in a sandbox ends with a reset, so that clients of HTTP/1.1 do not
// take it for whole.
func TestAnAnswerThatBreaksOffEndsWithAReset(t *testing.T) {
	b := newBench(t)
	b.fork("1")
	s := b.withIngress(t)
	b.engine.Ports[80] = func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, []listen.Listener{{Listener: tcp}}, time.Second) }()
	defer func() {
		stop()
		<-ended
	}()
	c, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 80-sb000000010001.%s\r\n\r\n", ingress.DefaultDomain)
	if all, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the connection ended with %v after %q", err, all)
	}
}
