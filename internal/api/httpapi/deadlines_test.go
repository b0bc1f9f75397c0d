package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// hurried are limits of a server that waits for half a second at most.
var hurried = httpapi.Limits{Header: 10 * time.Second, Body: 20 * time.Second, Swallow: 250 * time.Millisecond,
	Waiting: 100, Read: 500 * time.Millisecond, Write: 500 * time.Millisecond}

// late is longer than a hurried server waits, and shorter than the wait of a normal server.
const late = 5 * time.Second

// hasty is a daemon with short timeouts and all of its APIs: the native API, E2B's, and ports of
// sandboxes.
type hasty struct {
	*bench
	l, tls    listen.Listener
	id        string // a sandbox of the native API
	e2b, envd string // a sandbox of E2B's API, and its token
	upload    string // a path that accepts an upload
	key       string
	revoke    func()

	flooded chan error    // an error for each flood after its reader has gone
	early   chan struct{} // closed: the answers of port 82 end
	sunk    chan int      // the size of each body of port 83
}

func newHasty(t *testing.T) *hasty {
	t.Helper()
	h := &hasty{bench: newBench(t), flooded: make(chan error, 10), early: make(chan struct{}), sunk: make(chan int, 10)}
	h.engine.Ports = map[uint16]func(net.Conn){
		80: func(c net.Conn) { _, _ = io.Copy(c, c) },
		81: h.flood,
		82: h.answerEarly,
		83: h.sink,
		84: func(c net.Conn) { upgraded(c, func() { _, _ = io.Copy(c, c) }) },
		85: func(c net.Conn) { upgraded(c, func() { h.flood(c) }) },
		86: h.floodAnswer,
	}
	k, text, err := h.keys.Create(keys.Spec{Name: "ops", Scopes: principal.All})
	if err != nil {
		t.Fatal(err)
	}
	h.key, h.revoke = text, func() { _, _ = h.keys.Revoke(k.ID) }
	h.id = h.fork("1")[0].ID
	outside := h.outside(t)
	h.serve(t, httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(h.engine), Images: h.images, Keys: h.keys, Ingress: outside}, hurried))
	h.makeE2B(t, outside)
	return h
}

// outside returns E2B's API.
func (h *hasty) outside(t *testing.T) *e2bapi.Handler {
	t.Helper()
	store, _, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	builds, _, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return e2bapi.New(e2bapi.Options{Engine: h.engine, Records: store, Builds: builds, Domain: ingress.DefaultDomain,
		Authenticate: func(r *http.Request) (context.Context, error) { return r.Context(), nil },
		Ports: ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: h.engine,
			Guard: fakeengine.Guard{Of: h.engine.Engine}})})
}

// serve runs a server on two listeners, one with TLS.
func (h *hasty) serve(t *testing.T, server *httpapi.Server) {
	t.Helper()
	cert, key, err := tlscert.Made(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files, err := tlscert.Open(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := files.Config("")
	if err != nil {
		t.Fatal(err)
	}
	bind := func(cfg *tls.Config) listen.Listener {
		l, err := (listen.Binding{Token: token, Keys: h.keys, TLS: cfg}).Listen(t.Context(), "tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	h.l, h.tls = bind(nil), bind(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- server.Run(ctx, []listen.Listener{h.l, h.tls}, 100*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

func (h *hasty) makeE2B(t *testing.T, outside http.Handler) {
	t.Helper()
	send := func(method, path, body string, v any) {
		w := httptest.NewRecorder()
		outside.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	var made struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	send("POST", "/v2/sandboxes", `{"templateID":"py"}`, &made)
	h.e2b, h.envd = made.ID, made.Token
	var template struct {
		ID string `json:"templateID"`
	}
	send("POST", "/v3/templates", `{"name":"files"}`, &template)
	var link struct {
		URL string `json:"url"`
	}
	send("GET", "/templates/"+template.ID+"/files/"+strings.Repeat("0", 64), "", &link)
	u, err := url.Parse(link.URL)
	if err != nil || u.Path == "" {
		t.Fatalf("upload link %q: %v", link.URL, err)
	}
	h.upload = u.RequestURI()
}

// flood sends until it is cut off, and reports the end.
func (h *hasty) flood(c net.Conn) {
	for {
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			h.flooded <- err
			return
		}
	}
}

// sink reads a request whole and answers.
func (h *hasty) sink(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	h.sunk <- int(n)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

// upgraded answers as a WebSocket server.
func upgraded(c net.Conn, then func()) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		then()
	}
}

// answerEarly answers a request without reading its body.
func (h *hasty) answerEarly(c net.Conn) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")
	<-h.early
	_, _ = io.WriteString(c, "0\r\n\r\n")
	_, _ = io.Copy(io.Discard, c) // linger as servers do: a close with unread bytes can overtake the end of the answer
}

// floodAnswer answers a request without an end.
func (h *hasty) floodAnswer(c net.Conn) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		h.flood(c)
	}
}

func (h *hasty) host(port int) string {
	return fmt.Sprintf("%d-%s.%s", port, sandbox.DNSID(h.id), ingress.DefaultDomain)
}

// bodied is a request with a body.
type bodied struct{ name, method, path, headers string }

func (h *hasty) bodied() []bodied {
	auth := "Host: x\r\nAuthorization: Bearer " + token + "\r\n"
	envd := "Host: x\r\nE2b-Sandbox-Id: " + h.e2b + "\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: " + h.envd + "\r\n"
	const octets, asJSON = "Content-Type: application/octet-stream\r\n", "Content-Type: application/json\r\n"
	return []bodied{
		{"image", "PUT", "/v1/images/new", auth + "Content-Type: application/x-tar\r\n"},
		{"JSON", "POST", "/v1/sandboxes", auth + asJSON},
		{"file by the agent's route", "POST", "/v1/sandboxes/" + h.id + "/agent/files?path=/x", auth + octets},
		{"call of the agent", "POST", "/v1/sandboxes/" + h.id + "/agent/filesystem.Filesystem/Stat", auth + asJSON},
		{"server in a sandbox", "POST", "/", "Host: " + h.host(83) + "\r\n"},
		{"E2B's control API", "POST", "/v2/sandboxes", "Host: x\r\n" + asJSON},
		{"E2B's files", "POST", "/files?path=/x", envd + octets},
		{"E2B's upload of a build", "PUT", h.upload, "Host: x\r\n"},
	}
}

// A client that stops sending a body gets an error, and its connection ends.
func TestSilentBodiesEnd(t *testing.T) {
	h := newHasty(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, b := range h.bodied() {
		for name, framing := range map[string]string{"length": "Content-Length: 300\r\n\r\n{", "chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			if name == "chunks" && b.path == h.upload {
				continue // an upload has a length
			}
			all.Go(func() {
				c := dial(t, h.l)
				_ = c.SetDeadline(time.Now().Add(late))
				if _, err := io.WriteString(c, b.method+" "+b.path+" HTTP/1.1\r\n"+b.headers+framing); err != nil {
					t.Errorf("%s: %v", b.name, err)
					return
				}
				got, err := io.ReadAll(c)
				if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") || !strings.Contains(string(got), "body") {
					t.Errorf("%s, %s: %.300q, %v", b.name, name, got, err)
				}
			})
		}
	}
}

// trickle sends n bytes, with pauses of a fifth of the server's read timeout.
func trickle(w io.Writer, n int) error {
	for range n {
		if _, err := w.Write([]byte(" ")); err != nil {
			return err
		}
		time.Sleep(hurried.Read / 5) // elapses: a slow client's pace
	}
	return nil
}

// A slow body with a steady flow of bytes is read to its end.
func TestSlowBodiesArrive(t *testing.T) {
	h := newHasty(t)
	var all sync.WaitGroup
	defer all.Wait()
	const n = 15 // three times the server's timeout
	for _, b := range h.bodied() {
		all.Go(func() {
			c := dial(t, h.l)
			_, _ = io.WriteString(c, b.method+" "+b.path+" HTTP/1.1\r\n"+b.headers+"Content-Length: "+strconv.Itoa(n)+"\r\n\r\n")
			if err := trickle(c, n); err != nil {
				t.Errorf("%s: %v", b.name, err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= 500 {
				t.Errorf("%s: %+v, %v", b.name, resp, err)
			}
		})
	}
}

// The server does not wait for a body no handler reads, whatever the answer is.
func TestUnwantedBodiesEnd(t *testing.T) {
	h := newHasty(t)
	const rest = "Content-Length: 100\r\n\r\n"
	var all sync.WaitGroup
	defer all.Wait()
	for name, row := range map[string]struct{ sent, status string }{
		"a GET":               {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + rest, "200"},
		"one without a token": {"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\n" + rest, "401"},
		"a preflight": {"OPTIONS /v1/sandboxes HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\n" +
			"Access-Control-Request-Method: GET\r\n" + rest, ""},
		"of no sandbox":      {"POST / HTTP/1.1\r\nHost: 80-sb000000019999." + ingress.DefaultDomain + "\r\n" + rest, "502"},
		"of a closed port":   {"POST / HTTP/1.1\r\nHost: " + h.host(99) + "\r\n" + rest, "502"},
		"of no E2B sandbox":  {"POST /files HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: none\r\nE2b-Sandbox-Port: 49983\r\n" + rest, ""},
		"of E2B's list":      {"GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\n" + rest, "408"}, // which reads all bodies
		"of E2B's preflight": {"OPTIONS /files HTTP/1.1\r\nHost: x\r\n" + rest, ""},
	} {
		all.Go(func() {
			c := dial(t, h.l)
			_ = c.SetDeadline(time.Now().Add(late))
			_, _ = io.WriteString(c, row.sent)
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+row.status) || strings.Count(string(got), "HTTP/1.1 ") != 1 {
				t.Errorf("%s: %.300q, %v", name, got, err)
			}
		})
	}
}

// If an answer began before its request was read, the rest of the request has no deadline. When the
// answer has ended, the server does not wait for the rest.
func TestAnEarlyAnswerSetsTheBodyFree(t *testing.T) {
	h := newHasty(t)
	c := dial(t, h.l)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+h.host(82)+"\r\nContent-Length: 300\r\n\r\n{")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	time.Sleep(3 * hurried.Read) // elapses: the client is silent
	if _, err := io.WriteString(c, "more"); err != nil {
		t.Error(err)
	}
	close(h.early)
	_ = c.SetReadDeadline(time.Now().Add(late))
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "early" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("the connection is open: %v", err)
	}
}

// A stream of messages may be silent between them, for example while a user is not typing.
func TestStreamsOfMessagesMayBeSilent(t *testing.T) {
	h := newHasty(t)
	c := dial(t, h.l)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+h.host(83)+
		"\r\nContent-Type: application/connect+proto\r\nContent-Length: 2\r\n\r\na")
	time.Sleep(3 * hurried.Read) // elapses: the client is silent
	_, _ = io.WriteString(c, "b")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	if n := <-h.sunk; n != 2 {
		t.Errorf("%d bytes came", n)
	}
}

func TestBodiesOverHTTP2(t *testing.T) {
	h := newHasty(t)
	_, port, _ := net.SplitHostPort(h.tls.Addr().String())
	c := h2(t, nil)
	send := func(b bodied, body io.Reader) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), b.method, "https://127.0.0.1:"+port+b.path, body)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		for line := range strings.SplitSeq(strings.TrimSpace(b.headers), "\r\n") {
			name, value, _ := strings.Cut(line, ": ")
			if r.Header.Set(name, value); name == "Host" && value != "x" {
				r.Host = value
			}
		}
		resp, err := c.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, b := range h.bodied() {
		if b.path == h.upload {
			continue // it has a length, which a pipe does not have
		}
		all.Go(func() {
			silent, in := io.Pipe()
			defer in.Close()
			go func() { _, _ = in.Write([]byte("{")) }()
			began := time.Now()
			status, text := send(b, silent)
			if took := time.Since(began); status != http.StatusRequestTimeout || took > late {
				t.Errorf("silent, %s: %d %.200q after %s", b.name, status, text, took)
			}
		})
		all.Go(func() {
			slow, in := io.Pipe()
			go func() { in.CloseWithError(trickle(in, 15)) }()
			if status, text := send(b, slow); status == http.StatusRequestTimeout || status == 0 || status >= 500 {
				t.Errorf("slow, %s: %d %.200q", b.name, status, text)
			}
		})
	}
}

// awaitFlooded waits until the guest's server is cut off.
func (h *hasty) awaitFlooded(t *testing.T, name string) {
	t.Helper()
	select {
	case <-h.flooded:
	case <-time.After(late):
		t.Errorf("%s: the answer is still being sent", name)
	}
}

func (h *hasty) floods() map[string]string {
	return map[string]string{
		"port": "GET /v1/sandboxes/" + h.id + "/ports/81/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " +
			api.UpgradeTCP + "\r\nAuthorization: Bearer " + token + "\r\n\r\n",
		"WebSocket": "GET / HTTP/1.1\r\nHost: " + h.host(85) + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"E2B's WebSocket": "GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + h.e2b + "\r\nE2b-Sandbox-Port: 85\r\n" +
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	}
}

// An upgraded connection ends if the client stops reading. It stays open if the client reads
// slowly, or if there is no data.
func TestUpgradedConnections(t *testing.T) {
	h := newHasty(t)
	for name, sent := range h.floods() {
		t.Run("unread "+name, func(t *testing.T) {
			c := dial(t, h.l)
			_, _ = io.WriteString(c, sent)
			h.awaitFlooded(t, name)
			_ = c.SetDeadline(time.Now().Add(late))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is open: %v", err)
			}
		})
		t.Run("slow "+name, func(t *testing.T) {
			c := dial(t, h.l)
			_, _ = io.WriteString(c, sent)
			for range 15 { // three times the server's timeout
				if n, err := io.CopyN(io.Discard, c, 4<<20); err != nil {
					t.Fatalf("ended after %d bytes: %v", n, err)
				}
				time.Sleep(hurried.Write / 5) // elapses: a slow client's pace
			}
			select {
			case err := <-h.flooded:
				t.Errorf("cut off: %v", err)
			default:
			}
			c.Close()
			<-h.flooded
		})
		t.Run("idle "+name, func(t *testing.T) {
			c := dial(t, h.l)
			_, _ = io.WriteString(c, strings.NewReplacer("/81/", "/80/", "85", "84").Replace(sent))
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%+v, %v", resp, err)
			}
			time.Sleep(3 * hurried.Write) // elapses: both sides are silent
			_, _ = io.WriteString(c, "still there\n")
			if got, err := in.ReadString('\n'); err != nil || got != "still there\n" {
				t.Errorf("%q, %v", got, err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after half of it was closed: %q, %v", rest, err)
			}
		})
	}
}

// A client is disconnected if it does not read an answer, on every API.
func TestUnreadAnswersEnd(t *testing.T) {
	h := newHasty(t)
	const size = 32 << 20 // larger than the kernel's socket buffers
	native, e2b := h.bodied()[2], h.bodied()[6]
	for _, b := range []bodied{native, e2b} {
		c := dial(t, h.l)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n", b.method, b.path, b.headers, size)
		if _, err := io.CopyN(c, zeros{}, size); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %+v, %v", b.name, resp, err)
		}
	}
	conns := map[string]net.Conn{}
	for name, sent := range map[string]string{
		native.name:           "GET " + native.path + " HTTP/1.1\r\n" + native.headers + "\r\n",
		e2b.name:              "GET " + e2b.path + " HTTP/1.1\r\n" + e2b.headers + "\r\n",
		"server in a sandbox": "GET / HTTP/1.1\r\nHost: " + h.host(86) + "\r\n\r\n",
		"E2B's port":          "GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + h.e2b + "\r\nE2b-Sandbox-Port: 86\r\n\r\n",
	} {
		conns[name] = dial(t, h.l)
		_, _ = io.WriteString(conns[name], sent)
	}
	time.Sleep(3 * hurried.Write) // elapses: the client does not read
	for name, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(late))
		n, err := io.Copy(io.Discard, c)
		if errors.Is(err, os.ErrDeadlineExceeded) || n >= size {
			t.Errorf("%s: %d bytes were sent, %v", name, n, err)
		}
	}
	for range 2 {
		h.awaitFlooded(t, "ports")
	}
}

// The end of a key ends blocked reads and writes, even if they set new deadlines repeatedly.
func TestTheEndOfAKeyEndsReadsAndWrites(t *testing.T) {
	h := newHasty(t)
	auth := "Host: x\r\nX-API-Key: " + h.key + "\r\n"
	reads := map[string]string{
		"JSON": "POST /v1/sandboxes HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
		"file": "POST /v1/sandboxes/" + h.id + "/agent/files?path=/x HTTP/1.1\r\n" + auth +
			"Content-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n",
	}
	var all sync.WaitGroup
	for name, sent := range reads {
		c := dial(t, h.l)
		_, _ = io.WriteString(c, sent)
		all.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(late))
			if got, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
		go func() { _ = trickle(c, 1000) }()
	}
	c := dial(t, h.l)
	_, _ = io.WriteString(c, strings.Replace(h.floods()["port"], "Authorization: Bearer "+token, "X-API-Key: "+h.key, 1))
	go func() { // slowly
		for {
			if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
				return
			}
			time.Sleep(hurried.Write / 5) // elapses: a slow client's pace
		}
	}()
	awaitSessions(t, h.keys, make([]chan string, 3))
	h.revoke()
	h.awaitFlooded(t, "port")
	all.Wait()
}

// frames is a client of HTTP/2 that sends only the frames of the test.
type frames struct {
	net.Conn
	*http2.Framer
}

func (h *hasty) frames(t *testing.T, window uint32, host, path string) frames {
	t.Helper()
	c, err := tls.Dial("tcp", h.tls.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	f := frames{c, http2.NewFramer(c, c)}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_, err = io.WriteString(c, http2.ClientPreface)
	err = errors.Join(err, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		f.WriteWindowUpdate(0, 1<<30), f.WriteSettingsAck(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An HTTP/2 client that gives an answer no window has its stream reset, even after the handler has
// returned.
func TestAnswersWithoutAWindowEnd(t *testing.T) {
	h := newHasty(t)
	for _, path := range []string{"/healthz", "/openapi.json"} {
		f := h.frames(t, 0, "x", path)
		_ = f.SetReadDeadline(time.Now().Add(late))
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
			if _, reset := frame.(*http2.RSTStreamFrame); reset {
				break
			}
		}
	}
}

// A client that does not read at all loses its connection, not only its streams.
func TestUnreadHTTP2Ends(t *testing.T) {
	h := newHasty(t)
	f := h.frames(t, 1<<30, h.host(86), "/")
	h.awaitFlooded(t, "HTTP/2")
	time.Sleep(2 * hurried.Write) // elapses: the time for the connection to end, while it is not read
	_ = f.SetReadDeadline(time.Now().Add(late))
	if _, err := io.Copy(io.Discard, f.Conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open: %v", err)
	}
}
