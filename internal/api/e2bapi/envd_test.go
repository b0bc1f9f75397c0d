package e2bapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/filesign"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestWhoMayAskTheAgent(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	open := want[created](t, b.do("POST", "/sandboxes", `{"templateID":"base","secure":false}`), 201)
	native, err := b.engine.Fork(t.Context(), sandbox.ForkRequest{Tag: "base", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	unknown := created{SandboxID: sandbox.DNSID(native.Children[0].Info.ID), EnvdAccessToken: ""}
	wrong := s
	wrong.EnvdAccessToken = "wrong"
	const refused = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"
	for _, c := range []struct {
		name   string
		of     created
		method string
		path   string
		status int
		body   string // if it matters
	}{
		{"its token", s, "GET", "/envs", 200, ""}, {"a wrong token", wrong, "GET", "/envs", 401, refused},
		{"health needs none", wrong, "GET", "/health", 204, ""},
		{"an open one", open, "GET", "/envs", 200, ""}, {"a wrong token for an open one", created{SandboxID: open.SandboxID, EnvdAccessToken: "x"}, "GET", "/envs", 200, ""},
		{"one of the native API's", unknown, "GET", "/envs", 401, refused},
		{"a wrong service", s, "POST", "/forkd.agent.v1.Agent/Ping", 404, ""}, {"the inventory", s, "POST", "/forkd.agent.v1.Inventory/List", 404, ""},
		{"init", s, "POST", "/init", 404, ""}, {"links", s, "POST", "/files/link", 404, ""}, {"freeze", s, "POST", "/freeze", 404, ""},
		{"a wrong file", s, "GET", "/files?path=/none/such", 404, `{"code":404,"message":"path '/none/such' does not exist"}` + "\n"},
		{"metrics", s, "GET", "/metrics", 200, ""},
	} {
		if a := b.envd(c.of, c.method, c.path, ""); a.StatusCode != c.status || c.body != "" && a.body != c.body {
			t.Errorf("%s: %s %s", c.name, a.Status, a.body)
		}
	}
	token := want[created](t, b.do("POST", "/v2/sandboxes/"+unknown.SandboxID+"/connect", `{}`), 200)
	if a := b.envd(token, "GET", "/envs", ""); a.StatusCode != 200 {
		t.Errorf("after it was connected to: %s", a.Status)
	}
	if !b.record(token).End.IsZero() {
		t.Error("to connect gave it an end")
	}
}

func TestWhereRequestsGo(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", r.Host) }))
	defer guest.Close()
	u, _ := url.Parse(guest.URL)
	port, _ := strconv.Atoi(u.Port())
	closed := fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox is running but port is not open","port":1,"code":502}`+"\n", s.SandboxID)
	const gone = `{"sandboxId":"sb000000099999","message":"The sandbox was not found","code":502}` + "\n"
	host := func(port int, id string) string { return fmt.Sprintf("%d-%s.example.test", port, id) }
	for _, c := range []struct {
		name    string
		headers []string
		status  int
		body    string
	}{
		{"by headers", []string{"E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", fmt.Sprint(port)}, 200, "served " + b.server.Listener.Addr().String()},
		{"by host", []string{"Host", host(port, s.SandboxID)}, 200, "served " + host(port, s.SandboxID)},
		{"the agent by host", []string{"Host", host(49983, s.SandboxID)}, 204, ""},
		{"a closed port", []string{"Host", host(1, s.SandboxID)}, 502, closed},
		{"no such sandbox", []string{"Host", host(80, "sb000000099999")}, 502, gone},
		{"no such agent", []string{"E2b-Sandbox-Id", "sb000000099999", "E2b-Sandbox-Port", "49983"}, 502, gone},
		{"one header", []string{"E2b-Sandbox-Id", s.SandboxID}, 400, "missing header E2b-Sandbox-Port\n"},
		{"a bad port", []string{"E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "x"}, 400, "invalid sandbox port \"x\"\n"},
	} {
		if a := b.do("GET", "/health", "", c.headers...); a.StatusCode != c.status || a.body != c.body {
			t.Errorf("%s: %s %q, want %d %q", c.name, a.Status, a.body, c.status, c.body)
		}
	}
}

func TestPrivateTraffic(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	if s.TrafficAccessToken == nil {
		t.Fatal("there is no token")
	}
	to := []string{"E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "1"}
	if a := b.do("GET", "/", "", to...); a.StatusCode != 403 || !strings.HasPrefix(a.body, `{"sandboxId":"`+s.SandboxID+`","message":"Sandbox is secured`) {
		t.Errorf("without it: %s %s", a.Status, a.body)
	}
	if a := b.do("GET", "/", "", append(to, "E2b-Traffic-Access-Token", *s.TrafficAccessToken)...); a.StatusCode != 502 {
		t.Errorf("with it: %s %s", a.Status, a.body)
	}
	if a := b.envd(s, "GET", "/envs", ""); a.StatusCode != 200 {
		t.Errorf("its agent: %s %s", a.Status, a.body)
	}
}

func TestSignedURLsSayWhoseTheyAre(t *testing.T) {
	b := newBench(t)
	s, other := b.create(`{"templateID":"base"}`), b.create(`{"templateID":"base"}`)
	path := t.TempDir() + "/a b+c.txt"
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, _ := m.CreateFormFile("file", path)
	io.WriteString(part, "content")
	m.Close()
	query := func(op filesign.Op, token, expires string) string {
		q := url.Values{"path": {path}, "signature": {filesign.Sign(path, op, "", token, expires)}}
		if expires != "" {
			q.Set("signature_expiration", expires)
		}
		return "/files?" + q.Encode()
	}
	if a := b.do("POST", query(filesign.Write, s.EnvdAccessToken, ""), form.String(), "Content-Type", m.FormDataContentType()); a.StatusCode != 200 ||
		!strings.Contains(a.body, `"type":"file"`) {
		t.Fatalf("upload: %s %s", a.Status, a.body)
	}
	at := func(d time.Duration) string { return fmt.Sprint(b.clock.now().Add(d).Unix()) }
	for _, c := range []struct {
		name, path string
		status     int
		body       string
	}{
		{"right", query(filesign.Read, s.EnvdAccessToken, ""), 200, "content"},
		{"of the other", query(filesign.Read, other.EnvdAccessToken, at(time.Minute)), 200, "content"},
		{"for writing", query(filesign.Write, s.EnvdAccessToken, ""), 401, `{"code":401,"message":"invalid signature"}` + "\n"},
		{"expired", query(filesign.Read, s.EnvdAccessToken, at(-time.Minute)), 401, `{"code":401,"message":"signature is already expired"}` + "\n"},
		{"none", "/files?path=x", 401, `{"code":401,"message":"missing signature query parameter"}` + "\n"},
	} {
		if a := b.do("GET", c.path, ""); a.StatusCode != c.status || a.body != c.body {
			t.Errorf("%s: %s %q", c.name, a.Status, a.body)
		}
	}
	b.do("DELETE", "/sandboxes/"+s.SandboxID, "")
	if a := b.do("GET", query(filesign.Read, s.EnvdAccessToken, ""), ""); a.StatusCode != 401 {
		t.Errorf("of one that has ended: %s", a.Status)
	}
}

// The stream of an ended sandbox breaks off without a normal end, from which clients detect the
// end.
func TestAKillBreaksStreamsOff(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	body := `{"process":{"cmd":"sleep","args":["300"]},"stdin":false}`
	frame := string([]byte{0, 0, 0, 0, byte(len(body))}) + body
	r, _ := http.NewRequestWithContext(t.Context(), "POST", b.server.URL+"/process.Process/Start", strings.NewReader(frame))
	r.Header.Set("Content-Type", "application/connect+json")
	r.Header.Set("Connect-Protocol-Version", "1")
	r.Header.Set("E2b-Sandbox-Id", s.SandboxID)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", s.EnvdAccessToken)
	resp, err := b.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, head); err != nil || head[0] != 0 {
		t.Fatalf("the first frame: %v, %v", head, err)
	}
	want[any](t, b.do("DELETE", "/sandboxes/"+s.SandboxID, ""), 204)
	rest, err := io.ReadAll(resp.Body)
	if err == nil || errors.Is(err, io.EOF) || bytes.Contains(rest, []byte{2, 0}) {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
}

func FuzzControl(f *testing.F) {
	b := newBench(f)
	s := b.create(`{"templateID":"base"}`)
	f.Add("POST", "/v2/sandboxes", `{"templateID":"base","network":{"denyOut":["0.0.0.0/0"],"allowOut":["a.b"]}}`, "")
	f.Add("GET", "/v2/sandboxes?limit=1&metadata=a%3Db", "", "x")
	f.Add("PUT", "/sandboxes/"+s.SandboxID+"/network", `{"rules":{"a":[{"transform":{"headers":{"a":"b"}}}]}}`, "")
	f.Add("DELETE", "/templates/ns%2Fn%3Adefault", "", "")
	f.Add("POST", "/sandboxes/x/snapshots", `{"name":"a/b:c"}`, "80-sb5f3a00120001.a.b")
	f.Fuzz(func(t *testing.T, method, target, body, host string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.HasSuffix(u.Path, "/fork") {
			return
		}
		r := &http.Request{Method: method, URL: u, Host: host, Header: http.Header{"X-Api-Key": {apiKey}},
			Body: io.NopCloser(strings.NewReader(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
		if !b.h.Match(r.WithContext(t.Context())) {
			return
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			b.h.ServeHTTP(w, r.WithContext(t.Context()))
		}()
		if w.Code >= 500 && w.Code != 501 && w.Code != 502 && w.Code != 503 {
			t.Errorf("%s %s %q: %d %s", method, target, body, w.Code, w.Body)
		}
	})
}
