package httpapi_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
)

// rough returns a server with short limits, on loopback.
func rough(t *testing.T, limits httpapi.Limits) listen.Listener {
	t.Helper()
	b := newBench(t)
	return serveOn(t, httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(b.engine)}, limits), "tcp://127.0.0.1:0", token)
}

var usual = httpapi.Limits{Header: 10 * time.Second, Body: 10 * time.Second, Swallow: 10 * time.Second, Waiting: 256}

func dial(t *testing.T, l listen.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange sends bytes and reads one answer.
func exchange(t *testing.T, c net.Conn, sent string) (int, api.Error) {
	t.Helper()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	return answer(t, bufio.NewReader(c))
}

func answer(t *testing.T, in *bufio.Reader) (int, api.Error) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer's body: %v", err)
	}
	var e api.Error
	if resp.StatusCode >= 400 {
		if err := json.Unmarshal(raw, &e); err != nil || e.Message == "" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("status %d, header %v: the body %q is no error of the API", resp.StatusCode, resp.Header, raw)
		}
	}
	return resp.StatusCode, e
}

const authorized = "Host: x\r\nAuthorization: Bearer " + token + "\r\n"

func TestWhatIsNoRequestGetsAnErrorOfTheAPI(t *testing.T) {
	l := rough(t, usual)
	for _, c := range []struct {
		name, sent string
		status     int
		code       api.Code
	}{
		{"garbage", "\x00\xff\x13\x37 nothing\r\n\r\n", 400, api.CodeInvalid},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, api.CodeInvalid},
		{"a text", "hello\r\n\r\n", 400, api.CodeInvalid},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, api.CodeInvalid},
		{"a header without a colon", "GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, api.CodeInvalid},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, api.CodeInvalid},
		{"HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401, api.CodeUnauthorized},
		{"HTTP/3.1", "GET / HTTP/3.1\r\nHost: x\r\n\r\n", 505, api.CodeInvalid},
		{"an unknown encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, api.CodeUnsupported},
		{"an unknown expectation", "GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417, api.CodeInvalid},
		{"a long header", "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431, api.CodeTooLarge},
		{"a long first line", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, api.CodeTooLarge},
		{"no route", "GET /nothing HTTP/1.1\r\n" + authorized + "\r\n", 404, api.CodeNotFound},
		{"no method", "BREW /v1/sandboxes HTTP/1.1\r\n" + authorized + "\r\n", 405, api.CodeMethod},
		{"no JSON", "POST /v1/sandboxes HTTP/1.1\r\n" + authorized + "Content-Length: 4\r\n\r\n{\"a\"", 400, api.CodeInvalid},
		{"a broken chunk", "POST /v1/sandboxes HTTP/1.1\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, api.CodeInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, e := exchange(t, dial(t, l), c.sent); status != c.status || e.Code != c.code {
				t.Errorf("got %d %+v, want %d %s", status, e, c.status, c.code)
			}
		})
	}
}

func TestAnswersOfHandlersAreLeftAlone(t *testing.T) {
	// An answer that looks like one of the server's own.
	l := rough(t, usual)
	c := dial(t, l)
	in := bufio.NewReader(c)
	for range 3 { // on one connection, one after another
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if status, _ := answer(t, in); status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if _, err := io.WriteString(c, "GARBAGE\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if status, e := answer(t, in); status != 400 || e.Code != api.CodeInvalid {
		t.Errorf("garbage after requests: %d %+v", status, e)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	l := rough(t, usual)
	c := dial(t, l)
	one := "GET /v1/sandboxes/sb-none HTTP/1.1\r\n" + authorized + "\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/sandboxes HTTP/1.1\r\nHost: x\r\n\r\n"
	if _, err := io.WriteString(c, strings.Repeat(one, 100)+"NONSENSE\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for i := range 100 {
		for _, want := range []int{404, 200, 401} {
			if status, e := answer(t, in); status != want {
				t.Fatalf("round %d: status %d %+v, want %d", i, status, e, want)
			}
		}
	}
	if status, _ := answer(t, in); status != 400 {
		t.Errorf("garbage at the end: status %d", status)
	}
}

// TestLargeBodiesGetTheirAnswer sends a whole body before it reads, as many programs do.
func TestLargeBodiesGetTheirAnswer(t *testing.T) {
	l := rough(t, usual)
	const size = 100 << 20
	long := "Content-Length: 104857600\r\n\r\n"
	for _, c := range []struct {
		name, head string
		status     int
	}{
		{"over the limit", "POST /v1/snapshots HTTP/1.1\r\n" + authorized + long, 413},
		{"over the limit, in chunks", "POST /v1/snapshots HTTP/1.1\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\n6400000\r\n", 413},
		{"without a token", "POST /v1/snapshots HTTP/1.1\r\nHost: x\r\n" + long, 401},
		{"of no route", "POST /nothing HTTP/1.1\r\n" + authorized + long, 404},
		{"of no method", "PATCH /v1/snapshots HTTP/1.1\r\n" + authorized + long, 405},
		{"of no sandbox", "POST /v1/sandboxes/sb-none/agent/files HTTP/1.1\r\n" + authorized + long, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, l)
			if _, err := io.WriteString(conn, c.head); err != nil {
				t.Fatal(err)
			}
			if n, err := io.CopyN(conn, zeros{}, size); err != nil {
				t.Fatalf("the body was not taken after %d bytes: %v", n, err)
			}
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || !resp.Close {
				t.Errorf("status %d, close %v, want %d and the connection closed", resp.StatusCode, resp.Close, c.status)
			}
			var e api.Error
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Code == "" {
				t.Errorf("the body is no error of the API: %+v, %v", e, err)
			}
		})
	}
}

// zeros is an endless body of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestErrorsDoNotWaitForTheBody(t *testing.T) {
	l := rough(t, usual)
	began := time.Now()
	status, _ := exchange(t, dial(t, l), "POST /v1/snapshots HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nno more")
	if took := time.Since(began); status != 401 || took > usual.Swallow/2 {
		t.Errorf("status %d after %s", status, took)
	}
}

func TestSlowRequestsAreToldSo(t *testing.T) {
	l := rough(t, httpapi.Limits{Header: 300 * time.Millisecond, Body: 300 * time.Millisecond, Swallow: 300 * time.Millisecond, Waiting: 10})
	for name, sent := range map[string]string{
		"header": "GET /healthz HTTP/1.1\r\nHost: ",
		"body":   "POST /v1/sandboxes HTTP/1.1\r\n" + authorized + "Content-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, l)
			if status, e := exchange(t, c, sent); status != 408 || e.Code != api.CodeRequestTimeout {
				t.Errorf("got %d %+v", status, e)
			}
			if n, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("the connection does not end: %d bytes, %v", n, err)
			}
		})
	}
}

// TestSlowClientsDoNotKeepOthersOut has 500 clients that hold connections in all cheap ways.
// Meanwhile another client sends requests repeatedly.
func TestSlowClientsDoNotKeepOthersOut(t *testing.T) {
	const slow = 500
	l := rough(t, httpapi.Limits{Header: time.Minute, Body: time.Minute, Swallow: time.Minute, Waiting: 64})
	ways := []string{
		"",
		"GET /healthz HTTP/1.1\r\nX: ",
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", // and stays
		"POST /v1/snapshots HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
		"POST /v1/snapshots HTTP/1.1\r\n" + authorized + "Content-Length: 1000000\r\n\r\n{",
	}
	for i := range slow {
		c := dial(t, l)
		_, _ = io.WriteString(c, ways[i%len(ways)]) // it may be closed already
		if i%50 == 0 {
			if status, e := exchange(t, dial(t, l), "GET /v1/sandboxes HTTP/1.1\r\n"+authorized+"\r\n"); status != 200 {
				t.Fatalf("beside %d slow clients: %d %+v", i, status, e)
			}
		}
	}
	// Refused connections take a moment to close.
	const most = 64 + slow/5 + 10
	waits := waiting(t, l)
	for end := time.Now().Add(10 * time.Second); waits > most && time.Now().Before(end); waits = waiting(t, l) {
		time.Sleep(10 * time.Millisecond)
	}
	if waits > most {
		t.Errorf("%d connections are open", waits)
	}
}
