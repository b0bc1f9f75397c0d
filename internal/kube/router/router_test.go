package router_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/router"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// front is a router in front of a cluster, with one sandbox of a claim in the namespace team-a.
type front struct {
	t       *testing.T
	url, id string
	cluster *fakecluster.Cluster
	reviews atomic.Int32
}

// start starts a router. The API server of Kubernetes is a fake, which knows the token alice for team-a.
func start(t *testing.T) *front {
	t.Helper()
	f := &front{t: t, cluster: fakecluster.Start(t, 2, "py", nil)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.reviews.Add(1)
		var review struct {
			Spec struct {
				Resource map[string]string `json:"resourceAttributes"`
			} `json:"spec"`
		}
		if json.NewDecoder(r.Body).Decode(&review) != nil || review.Spec.Resource["subresource"] != "exec" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch r.Header.Get("Authorization") {
		case "Bearer alice":
			allowed := review.Spec.Resource["namespace"] == "team-a"
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]bool{"allowed": allowed}})
		case "Bearer broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	inside := router.NewInside(f.cluster.Gateway)
	forkd, err := inside.Client(fakecluster.Token)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { inside.Run(); close(ended) }()
	k := &router.Kubernetes{URL: server.URL, HTTP: server.Client()}
	s := httptest.NewServer(router.New(router.Config{Gateway: f.cluster.Gateway, Forkd: forkd, Allowed: k.Allowed}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		forkd.Close()
		inside.Close()
		<-ended
	})
	owner := fleet.Owner{Kind: "SandboxClaim", Namespace: "team-a", Name: "one", UID: "u"}
	res, err := fleet.New(forkd).Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	f.url, f.id = s.URL, res.Sandboxes[0].ID
	return f
}

// call sends a request as alice, with further headers.
func (f *front) call(method, path string, body io.Reader, header ...string) (int, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("X-Sandbox-ID", f.id)
	r.Header.Set("X-Sandbox-Namespace", "team-a")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func upload(name, content string) (io.Reader, string) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, _ := form.CreateFormFile("file", name)
	_, _ = io.WriteString(part, content)
	_ = form.Close()
	return &b, form.FormDataContentType()
}

func TestTheRuntimeAPIOfASandboxWithoutAServer(t *testing.T) {
	f := start(t)
	body, kind := upload("d/a.txt", "one")
	for _, c := range []struct {
		method, path string
		body         io.Reader
		header       []string
		status       int
		want         string
	}{
		{"POST", "/execute", strings.NewReader(`{"command":"echo hello","timeout_seconds":5}`), nil, 200,
			`"stdout":"hello\n"`},
		{"POST", "/execute", strings.NewReader(`{"command":"exit 3"}`), nil, 200, `"exit_code":3`},
		{"POST", "/execute", strings.NewReader(`{"command":"sleep","timeout_seconds":-1}`), nil, 422, `timeout_seconds`},
		{"POST", "/execute", strings.NewReader(`{"command":`), nil, 422, `detail`},
		{"POST", "/execute", strings.NewReader(`{"command":"` + strings.Repeat("x", 1<<20) + `"}`), nil, 413, `detail`},
		{"POST", "/upload", body, []string{"Content-Type", kind}, 200, `d/a.txt`},
		{"POST", "/upload", strings.NewReader("x"), nil, 422, `multipart`},
		{"GET", "/download/d%2Fa.txt", nil, nil, 200, `one`},
		{"GET", "/download/..%2F..%2Fd%2Fa.txt", nil, nil, 200, `one`},
		{"GET", "/download/%00", nil, nil, 400, `detail`},
		{"GET", "/download/missing", nil, nil, 404, `detail`},
		{"GET", "/list/d", nil, nil, 200, `"name":"a.txt","size":3,"type":"file"`},
		{"GET", "/list/missing", nil, nil, 404, `detail`},
		{"GET", "/exists/d", nil, nil, 200, `"exists":true`},
		{"GET", "/exists/d%2Fa.txt", nil, nil, 200, `"exists":true`},
		{"GET", "/exists/missing", nil, nil, 200, `"exists":false`},
		{"GET", "/", nil, nil, 200, `"status":"ok"`},
		{"GET", "/other", nil, nil, 502, `detail`},
		{"DELETE", "/download/d", nil, nil, 502, `detail`},
		{"POST", "/execute", strings.NewReader(`{"command":"sleep"}`), []string{"X-Sandbox-Timeout", "0.3"}, 504,
			`X-Sandbox-Timeout`},
	} {
		status, got := f.call(c.method, c.path, c.body, c.header...)
		if status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %.200s, want %d with %s", c.method, c.path, status, got, c.status, c.want)
		}
	}
}

func TestTheAPIServerIsAskedOncePerTokenAndNamespace(t *testing.T) {
	f := start(t)
	for range 5 {
		if status, body := f.call("GET", "/", nil); status != 200 {
			t.Fatal(status, body)
		}
	}
	if n := f.reviews.Load(); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
	for token, want := range map[string]int{"mallory": 401, "broken": 502, "": 401} {
		for range 2 {
			if status, body := f.call("GET", "/", nil, "Authorization", "Bearer "+token); status != want {
				t.Errorf("token %q: %d %s, want %d", token, status, body, want)
			}
		}
	}
	if n := f.reviews.Load(); n != 4 { // a broken answer is no answer
		t.Errorf("%d questions, want 4", n)
	}
	if status, body := f.call("GET", "/", nil, "X-Sandbox-Namespace", "team-b"); status != 403 {
		t.Errorf("another namespace: %d %s", status, body)
	}
}

func TestRequestsWithoutTheHeaderAreTheGateways(t *testing.T) {
	f := start(t)
	resp, err := http.Get(f.url + "/v1/sandboxes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get(api.HeaderError) == "" {
		t.Errorf("a request without a key: %s: the router's key must not serve it", resp.Status)
	}
	if status, body := f.call("GET", "/healthz", nil); status != 200 {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, _ := f.call("GET", "/v1/sandboxes", nil, "X-Sandbox-Port", "1"); status != 502 {
		t.Errorf("a path of the API with the header: %d, want a closed port of the sandbox", status)
	}
}
