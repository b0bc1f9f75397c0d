package network

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const (
	proxyAddr = "93.184.216.37"
	proxyPort = "3128"
)

// relay is a proxy with CONNECT. It keeps the target and the password of each connection.
type relay struct {
	mu   sync.Mutex
	seen []string
}

func (r *relay) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	req, err := http.ReadRequest(in)
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	_, password, _ := (&http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}).BasicAuth()
	r.mu.Lock()
	r.seen = append(r.seen, req.Host+" "+password)
	r.mu.Unlock()
	far, err := net.Dial("tcp", req.Host)
	if err != nil {
		return
	}
	defer far.Close()
	_ = far.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, in)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, far)
}

// take returns the connections since the last call.
func (r *relay) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// grants is a run with one source, whose policy grants a bucket and has a proxy. The suite in test/conformance has
// the other things that a sandbox is given.
type grants struct {
	*world
	source   string
	password string // the current one of the proxy
	object   string // the current content of the object
}

// Each way to another sandbox, and what that gets of a bucket and of a proxy. Objects are outside: no way copies or
// rolls back one.
func TestEveryWayWithABucketAndAProxy(t *testing.T) {
	kvmtest.Soak(t) // short forms: TestGuestsUseBucketsWithoutTheirKeys, and the engine's suite over fake VMs
	g := &grants{world: shared(t)}
	ctx := t.Context()
	g.setSecret(t, "GIVEN_ID", bucketID)
	g.setSecret(t, "GIVEN_KEY", bucketKey)
	g.newPassword(t, "first-password")
	var rows []*row
	way := func(name string, look func(*row)) {
		r := newRow(name)
		rows = append(rows, r)
		look(r)
	}
	way("fork", func(r *row) {
		g.source = g.make(t, g.policy())
		g.write(t, r, g.source, "of-the-source")
		g.has(t, r, g.source)
	})
	way("plain fork", func(r *row) { g.hasNot(t, r, g.make(t, nil)) })
	way("branch", func(r *row) {
		child := g.branch(t, g.source, api.BranchRequest{Tag: "given", Mode: api.BranchLive, N: 1})[0].ID
		g.has(t, r, child)
		g.write(t, r, child, "of-the-branch")
		g.has(t, r, g.source)
	})
	way("fork of the branch", func(r *row) {
		n := 1
		res, err := g.Client.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "given", N: &n})
		if err != nil || res.Sandboxes[0].Error != "" {
			t.Fatal(err, res)
		}
		t.Cleanup(func() { _ = g.Kill(res.Sandboxes[0].ID) })
		g.has(t, r, res.Sandboxes[0].ID)
	})
	way("guest's fork", func(r *row) {
		child := (&source{world: g.world, id: g.source}).guestFork(t)
		g.has(t, r, child)
		g.write(t, r, child, "of-the-guests-fork")
		g.has(t, r, g.source)
	})
	way("rollback", func(r *row) {
		g.write(t, r, g.source, "after-the-branch")
		g.newPassword(t, "second-password")
		if _, err := g.Client.Rollback(ctx, g.source, "given"); err != nil {
			t.Fatal(err)
		}
		g.has(t, r, g.source)
	})
	way("pause and resume", func(r *row) {
		life := client.Life{Client: g.Client}
		if _, err := life.Pause(ctx, g.source, api.PauseRequest{}); err != nil {
			t.Fatal(err)
		}
		g.newPassword(t, "third-password")
		if _, err := life.Resume(ctx, g.source); err != nil {
			t.Fatal(err)
		}
		g.has(t, r, g.source)
		g.write(t, r, g.source, "after-the-resume")
		g.has(t, r, g.source)
	})
	if err := g.Kill(g.source); err != nil { // it runs from the branch, which is deleted at the end
		t.Error(err)
	}
	settle(t, []string{"bucket", "proxy"}, rows)
}

func (g *grants) setSecret(t *testing.T, name, value string) {
	t.Helper()
	if _, err := g.Client.Secrets().Set(t.Context(), name, api.SetSecretRequest{Value: value}); err != nil {
		t.Fatal(err)
	}
}

// newPassword changes the password of the proxy.
func (g *grants) newPassword(t *testing.T, password string) {
	t.Helper()
	g.setSecret(t, "GIVEN_PROXY", password)
	g.password = password
}

func (g *grants) policy() *api.NetworkPolicy {
	return &api.NetworkPolicy{
		Allow: []string{bucketHost + ":443", web + ":" + echoPort},
		Proxy: &api.NetworkProxy{URL: "http://" + net.JoinHostPort(proxyAddr, proxyPort), User: "build", Secret: "GIVEN_PROXY"},
		Sign: []api.SignRule{{Host: bucketHost, Region: "eu-central-1",
			Secrets: api.SignSecrets{AccessKeyID: "GIVEN_ID", SecretAccessKey: "GIVEN_KEY"},
			Buckets: []api.BucketRule{{Name: "work", Prefix: "given/"}}}},
	}
}

// make makes a sandbox that may fork itself.
func (g *grants) make(t *testing.T, p *api.NetworkPolicy) string {
	t.Helper()
	n := 1
	res, err := g.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Network: p, GuestFork: true})
	if err != nil || res.Sandboxes[0].Error != "" {
		t.Fatal(err, res)
	}
	id := res.Sandboxes[0].ID
	t.Cleanup(func() {
		if err := g.Kill(id); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	})
	return id
}

const givenObject = "https://" + bucketHost + "/work/given/object"

// curl runs curl in a sandbox, and returns the output with the status.
func (g *grants) curl(t *testing.T, id, args string) string {
	t.Helper()
	r, err := g.Client.Exec(t.Context(), id, api.ExecRequest{TimeoutSecs: patience.Seconds(),
		Args: []string{"sh", "-c", `curl -sS -w " %{http_code}" ` + args + " 2>&1"}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout
}

func (g *grants) write(t *testing.T, r *row, id, text string) {
	t.Helper()
	if out := g.curl(t, id, "-X PUT --data-binary "+text+" "+givenObject); out != " 200" {
		r.wrong("bucket", "%s writes: %s", id, out)
	}
	g.object = text
}

// has checks that a sandbox reads the object as it is now, and that its connections go through the proxy with the
// present password.
func (g *grants) has(t *testing.T, r *row, id string) {
	t.Helper()
	g.far.relay.take()
	if out, want := g.curl(t, id, givenObject), g.object+" 200"; out != want {
		r.wrong("bucket", "%s reads %q, want %q", id, out, want)
	}
	if out := g.curl(t, id, "https://"+bucketHost+"/work/other"); !strings.Contains(out, "AccessDenied") {
		r.wrong("bucket", "%s reads an object that is not granted: %s", id, out)
	}
	if out := g.try(t, id, fmt.Sprintf("exchange(dial(%q, %s), 'hello')", web, echoPort)); string(out.Value) != `"hello"` {
		r.wrong("proxy", "%s: %s", id, out)
	}
	seen := g.far.relay.take()
	for _, target := range []string{net.JoinHostPort(bucketAddr, "443"), net.JoinHostPort(web, echoPort)} {
		if want := target + " " + g.password; !slices.Contains(seen, want) {
			r.wrong("proxy", "%s: the proxy saw %q, want %q", id, seen, want)
		}
	}
}

// hasNot checks a sandbox without the policy.
func (g *grants) hasNot(t *testing.T, r *row, id string) {
	t.Helper()
	g.far.relay.take()
	if out := g.curl(t, id, givenObject); !strings.HasSuffix(out, " 000") {
		r.wrong("bucket", "%s reaches the bucket: %s", id, out)
	}
	if out := g.try(t, id, fmt.Sprintf("dial(%q, %s)", web, echoPort)); out.Error == "" {
		r.wrong("proxy", "%s reaches a host: %s", id, out)
	}
	if seen := g.far.relay.take(); len(seen) > 0 {
		r.wrong("proxy", "%s: the proxy saw %q", id, seen)
	}
	r.notes["bucket"], r.notes["proxy"] = "none", "none"
}
