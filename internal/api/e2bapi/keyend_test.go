package e2bapi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// keyedRequest is a request without an end.
type keyedRequest struct {
	name, method, path, body string
	stream                   bool // of the agent: a stream that has begun
	held                     bool // in the engine
	status                   int
	says                     string
}

func keyedRequests(id string) []keyedRequest {
	at, dns := "/v1/sandboxes/"+id+"/agent/", "/sandboxes/"+sandbox.DNSID(id)
	return []keyedRequest{
		{name: "file watch", method: "POST", path: at + "filesystem.Filesystem/WatchDir", body: `{"path":"/tmp"}`,
			stream: true, status: 200, says: "unauthenticated"},
		{name: "program", method: "POST", path: at + "process.Process/Start",
			body: `{"process":{"cmd":"sleep","args":["3600"]}}`, stream: true, status: 200, says: "unauthenticated"},
		{name: "create", method: "POST", path: "/v2/sandboxes", body: `{"templateID":"open"}`, held: true, status: 401, says: "revoked"},
		{name: "create of an image", method: "POST", path: "/v2/sandboxes", body: `{"templateID":"base"}`, held: true, status: 401, says: "revoked"},
		{name: "snapshot", method: "POST", path: dns + "/snapshots", body: `{}`, held: true, status: 401, says: "revoked"},
		{name: "fork", method: "POST", path: dns + "/fork", body: `{}`, held: true, status: 401, says: "revoked"},
	}
}

// send sends a request with a key and returns the status and the body, or an error in place of the
// body. It calls begun when the answer begins.
func (d *daemon) send(key string, q keyedRequest, begun func()) (int, string) {
	body := []byte(q.body)
	if q.stream {
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	r, err := http.NewRequest(q.method, d.server.URL+q.path, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("X-API-KEY", key)
	r.Header.Set("Content-Type", "application/json")
	if q.stream {
		r.Header.Set("Content-Type", "application/connect+json")
	}
	resp, err := d.server.Client().Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	begun()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(all)
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after 5 s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// The end of a tenant's key ends its streams of the agent and its requests to the control API.
func TestRequestsEndWithTheirKey(t *testing.T) {
	d := newDaemon(t)
	key := d.key(keys.Spec{Name: "gone", Tenant: "acme"})
	var waiting, begun atomic.Int32 // operations of the engine, and answers
	d.engine.Block = func(ctx context.Context) error {
		waiting.Add(1)
		defer waiting.Add(-1)
		<-ctx.Done()
		return ctx.Err()
	}
	type reply struct {
		status int
		body   string
	}
	all := keyedRequests(sandbox.CanonicalID(d.own.SandboxID))
	replies, held := make([]chan reply, len(all)), 0
	for i, q := range all {
		replies[i] = make(chan reply, 1)
		if q.held {
			held++
		}
		go func() {
			status, body := d.send(key, q, func() { begun.Add(1) })
			replies[i] <- reply{status, body}
		}()
	}
	eventually(t, "all requests are under way", func() bool {
		return int(waiting.Load()) >= held && int(begun.Load()) >= len(all)-held
	})
	d.revoke("gone")
	late := time.After(20 * time.Second)
	for i, q := range all {
		select {
		case r := <-replies[i]:
			if r.status != q.status || !strings.Contains(r.body, q.says) {
				t.Errorf("%s: %d %q, want %d and %q", q.name, r.status, r.body, q.status, q.says)
			}
		case <-late:
			t.Errorf("%s: still open", q.name)
		}
	}
	eventually(t, "no work of the key is left", func() bool { return d.keys.Bound() == 0 && waiting.Load() == 0 })
}

// A running build ends with the key that began it, and leaves no sandbox.
func TestABuildEndsWithItsKey(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("steps act as root in their guest, which is this host")
		t.SkipNow()
	}
	d := newDaemon(t)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { d.h.Run(ctx); close(ran) }()
	defer func() { stop(); <-ran }()
	key := d.key(keys.Spec{Name: "gone", Tenant: "acme"})
	before := len(d.engine.List())
	r := want[requested](t, d.as(key, "POST", "/v3/templates", `{"name":"mine"}`), 202)
	begin := t.TempDir() + "/begun"
	body := fmt.Sprintf(`{"fromTemplate":"open","steps":[{"type":"RUN","args":["touch %s; sleep 3600"]}]}`, begin)
	want[any](t, d.as(key, "POST", "/v2/templates/"+r.TemplateID+"/builds/"+r.BuildID, body), 202)
	eventually(t, "the step runs", func() bool { _, err := os.Stat(begin); return err == nil })
	d.revoke("gone")
	var s buildStatus
	eventually(t, "the build is over", func() bool {
		s = want[buildStatus](t, d.as(d.acme, "GET", "/templates/"+r.TemplateID+"/builds/"+r.BuildID+"/status", ""), 200)
		return s.Status == "error"
	})
	if s.Reason == nil || !strings.Contains(s.Reason.Message, "revoked") {
		t.Errorf("the reason is %+v", s.Reason)
	}
	eventually(t, "the build's sandbox is gone", func() bool { return len(d.engine.List()) == before && d.keys.Bound() == 0 })
	wantError(t, d.as(key, "GET", "/templates/"+r.TemplateID+"/builds/"+r.BuildID+"/logs", ""), 401)
}

// The snapshot of an image is begun again when its first key ends while another key of the tenant
// waits for it.
func TestAnImagesSnapshotOutlivesAnotherKey(t *testing.T) {
	d := newDaemon(t)
	gone, stays := d.key(keys.Spec{Name: "gone", Tenant: "acme"}), d.key(keys.Spec{Name: "stays", Tenant: "acme"})
	var waiting atomic.Int32
	d.engine.Block = func(ctx context.Context) error {
		if principal.From(ctx).Name != "gone" {
			return nil
		}
		waiting.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	create := keyedRequest{method: "POST", path: "/v2/sandboxes", body: `{"templateID":"base"}`}
	status := map[string]chan int{gone: make(chan int, 1), stays: make(chan int, 1)}
	send := func(key string) {
		code, _ := d.send(key, create, func() {})
		status[key] <- code
	}
	go send(gone)
	eventually(t, "the first key's snapshot is being made", func() bool { return waiting.Load() == 1 })
	go send(stays)
	eventually(t, "the second key waits", func() bool { return d.keys.Bound() == 3 }) // two requests and the snapshot
	d.revoke("gone")
	if first, second := <-status[gone], <-status[stays]; first != 401 || second != 201 {
		t.Errorf("the revoked key gets %d, the other %d, want 401 and 201", first, second)
	}
}
