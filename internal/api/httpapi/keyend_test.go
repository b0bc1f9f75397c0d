package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// keyClock is a clock a test moves while a server reads it.
type keyClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *keyClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *keyClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// keyedServer is a server whose clients show one key.
type keyedServer struct {
	store     *keys.Store
	key       keys.Key
	text, url string
	clock     *keyClock
}

func newKeyedServer(t *testing.T, b *bench) *keyedServer {
	t.Helper()
	s := &keyedServer{clock: &keyClock{at: time.Now()}}
	var err error
	if s.store, err = keys.Open(keys.Config{Path: filepath.Join(t.TempDir(), "keys.json"), Now: s.clock.now}); err != nil {
		t.Fatal(err)
	}
	s.key, s.text, err = s.store.Create(keys.Spec{Name: "ops", Scopes: principal.All, Expires: s.clock.now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	log := events.New(1<<32, 100, time.Now)
	auditFile := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(auditFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(held{b.engine}), Images: b.images, Events: log, Keys: s.store,
		AuditFile: auditFile})
	server := httptest.NewServer(api.Handler(auth.Access{Token: token, Keys: s.store}))
	t.Cleanup(server.Close)
	t.Cleanup(log.Close)
	s.url = server.URL
	return s
}

// held is an engine with long operations that end only with their caller. Operations with progress
// report it once.
type held struct{ fakeengine.Flat }

func block(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (held) CreateSnapshot(ctx context.Context, _ sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	progress(sandbox.Step{Name: "boot"})
	return sandbox.SnapshotInfo{}, block(ctx)
}

func (held) DeriveSnapshot(ctx context.Context, _ sandbox.DeriveRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	progress(sandbox.Step{Name: "run"})
	return sandbox.SnapshotInfo{}, block(ctx)
}

func (held) CompactSnapshot(ctx context.Context, _, _ string,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	progress(sandbox.Step{Name: "write"})
	return sandbox.SnapshotInfo{}, block(ctx)
}

func (held) VerifySnapshot(ctx context.Context, _ string) (sandbox.VerifyReport, error) {
	if tell := sandbox.Progress(ctx); tell != nil {
		tell(1, 2)
	}
	return sandbox.VerifyReport{}, block(ctx)
}

func (held) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	if req.Each != nil {
		req.Each(sandbox.Child{Index: 1, Err: sandbox.ErrNoMemory})
	}
	return sandbox.ForkResult{}, block(ctx)
}

func (held) Branch(ctx context.Context, _ sandbox.BranchRequest) (sandbox.BranchResult, error) {
	return sandbox.BranchResult{}, block(ctx)
}

func (held) Eval(ctx context.Context, _ string, _ sandbox.EvalRequest) (sandbox.EvalResult, error) {
	return sandbox.EvalResult{}, block(ctx)
}

// keyedStream is a request without an end. last is in the last bytes of its answer.
type keyedStream struct{ name, method, path, contentType, last string }

func keyedStreams(id string) []keyedStream {
	start := "\x00\x00\x00\x00\x2b" + `{"process":{"cmd":"sleep","args":["3600"]}}`
	return []keyedStream{
		{"events", "GET", "/v1/events", "", "was revoked"},
		{"console", "GET", "/v1/sandboxes/" + id + "/console?follow=true", "", ""},
		{"agent stream", "POST", "/v1/sandboxes/" + id + "/agent/process.Process/Start", start, "unauthenticated"},
		{"port", "GET", "/v1/sandboxes/" + id + "/ports/80/connect", "upgrade", ""},
		{"exec", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":["wait"]}`, "was revoked"},
		{"upload", "POST", "/v1/sandboxes/" + id + "/agent/files?path=/x", "endless", ""},
		{"slow body", "POST", "/v1/sandboxes", "endless", ""},
		{"image", "PUT", "/v1/images/new", "endless", ""},
		{"audit", "GET", "/v1/audit?follow=true", "", ""},
		{"network log", "GET", "/v1/sandboxes/" + id + "/network/log?follow=true", "", ""},
		{"snapshot steps", "POST", "/v1/snapshots", `{"tag":"x","image":"python-numpy"}`, "was revoked"},
		{"derived snapshot steps", "POST", "/v1/snapshots", `{"tag":"x","from":"py","exec":["true"]}`, "was revoked"},
		{"compacted snapshot steps", "POST", "/v1/snapshots/py/compact", `{"to":"x"}`, "was revoked"},
		{"verification steps", "POST", "/v1/snapshots/py/verify", "", "was revoked"},
		{"forked children", "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`, "was revoked"},
		{"branch", "POST", "/v1/sandboxes/" + id + "/branch", `{}`, "was revoked"},
		{"eval", "POST", "/v1/sandboxes/" + id + "/eval", `{"code":"1"}`, "was revoked"},
	}
}

// open sends the request and returns the connection for the answer.
func (k *keyedServer) open(t *testing.T, s keyedStream) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(k.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	head := s.method + " " + s.path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + k.text + "\r\n"
	if s.contentType != "upgrade" {
		head += "Connection: close\r\n"
	}
	if strings.Contains(s.name, "steps") || s.name == "forked children" {
		head += "Accept: application/x-ndjson\r\n"
	}
	switch body := s.contentType; {
	case body == "":
		head += "\r\n"
	case body == "upgrade":
		head += "Connection: Upgrade\r\nUpgrade: " + api.UpgradeTCP + "\r\n\r\n"
	case body == "endless":
		kind := "application/json"
		if s.name == "image" {
			kind = "application/x-tar"
		}
		head += "Content-Type: " + kind + "\r\nContent-Length: 1000000\r\n\r\n{"
	default:
		kind := "application/json"
		if s.name == "agent stream" {
			kind = "application/connect+json"
		}
		r, _ := http.NewRequest("POST", "http://x", strings.NewReader(body))
		head += "Content-Type: " + kind + "\r\nContent-Length: " + strconv.FormatInt(r.ContentLength, 10) + "\r\n\r\n" + body
	}
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return c
}

// Revocation and expiry of a key end all streams opened with it, and leave other requests alone.
func TestStreamsEndWithTheirKey(t *testing.T) {
	for how, end := range map[string]func(*keyedServer) error{
		"revoked": func(k *keyedServer) error { _, err := k.store.Revoke(k.key.ID); return err },
		"expired": func(k *keyedServer) error { k.clock.pass(2 * time.Hour); return nil },
		"rotated": func(k *keyedServer) error { _, _, err := k.store.Rotate(k.key.ID, 0); return err },
	} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			b.engine.Ports = map[uint16]func(net.Conn){80: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }}
			id := b.fork("1")[0].ID
			k := newKeyedServer(t, b)
			streams := keyedStreams(id)
			answers := make([]chan string, len(streams))
			for i, s := range streams {
				c, got := k.open(t, s), make(chan string, 1)
				answers[i] = got
				go func() {
					all, _ := io.ReadAll(c)
					got <- string(all)
				}()
			}
			awaitSessions(t, k.store, answers)
			if err := end(k); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for i, s := range streams {
				select {
				case got := <-answers[i]:
					if !strings.Contains(got, s.last) {
						t.Errorf("%s: the answer ends without %q: %q", s.name, s.last, got)
					}
				case <-ctx.Done():
					t.Errorf("%s: the stream is still open", s.name)
				}
			}
		})
	}
}

// awaitSessions waits until all requests are bound to their key.
func awaitSessions(t *testing.T, store *keys.Store, answers []chan string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); store.Bound() < len(answers); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, a := range answers {
				select {
				case got := <-a:
					t.Logf("ended early: %q", got)
				default:
				}
			}
			t.Fatalf("%d requests are bound to the key, want %d", store.Bound(), len(answers))
		}
	}
	time.Sleep(100 * time.Millisecond) // elapses: the way from the check of the key to the handler
}

// Every route with a stream of lines has a row above.
func TestEveryStreamOfLinesEndsWithItsKey(t *testing.T) {
	const id = "sb-00000001-0001"
	rows := keyedStreams(id)
	newBench(t).document().each(func(method, path string, op operation) {
		for _, r := range op.Responses {
			if _, streams := r.Content["application/x-ndjson"]; !streams {
				continue
			}
			concrete := strings.NewReplacer("{id}", id, "{tag}", "py").Replace(path)
			if !slices.ContainsFunc(rows, func(s keyedStream) bool {
				of, _, _ := strings.Cut(s.path, "?")
				return s.method == method && of == concrete
			}) {
				t.Errorf("%s %s streams lines and has no row in keyedStreams", method, path)
			}
		}
	})
}
