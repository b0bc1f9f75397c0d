package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/testing/bothways"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// forkOn makes a sandbox on one node of the cluster.
func forkOn(t testing.TB, n *fakecluster.Node) string {
	t.Helper()
	res, err := n.Daemon.Engine.Fork(t.Context(), sandbox.ForkRequest{Tag: "py", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	return res.Children[0].Info.ID
}

// An id with the key of no node, or of another node, gets the same answer as any unknown id.
func TestAForgedKeyIsAnUnknownSandbox(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	id := forkOn(t, c.Nodes[0])
	requestID := regexp.MustCompile(`"request_id":"[^"]*"`)
	shape := func(id string) string {
		a := do(t, c, "GET", "/v1/sandboxes/"+id, "")
		return fmt.Sprint(a.StatusCode, requestID.ReplaceAllString(strings.ReplaceAll(a.body, id, "ID"), ""))
	}
	want := shape("sb-2222222222222222" + string(c.Nodes[0].Key))
	if !strings.HasPrefix(want, "404") {
		t.Fatal(want)
	}
	for _, forged := range []string{id[:19] + "aaaaa", id[:19] + string(c.Nodes[1].Key), "sb-2222222222222222", "sb-00000001-0001"} {
		if got := shape(forged); got != want {
			t.Errorf("%s: %s, want %s", forged, got, want)
		}
	}
	if a := do(t, c, "GET", "/v1/sandboxes/"+id[:19]+"aaaaa", "", "Authorization", "Bearer wrong"); a.StatusCode != 401 {
		t.Errorf("without a key: %d", a.StatusCode)
	}
	if a := do(t, c, "GET", "/v1/sandboxes/"+sandbox.DNSID(id), ""); a.StatusCode != 200 {
		t.Errorf("the id without dashes: %d %s", a.StatusCode, a.body)
	}
}

func TestForgedHeadersAreDropped(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", nil)
	id := forkOn(t, c.Nodes[0])
	var mu sync.Mutex
	var got http.Header
	c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path != "/v1/node" {
			mu.Lock()
			got = r.Header.Clone()
			mu.Unlock()
		}
		pass.ServeHTTP(w, r)
	})
	headers := []string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Host", "evil", "X-Forwarded-Proto", "gopher",
		"X-Forwarded-Client-Cert", "evil", "Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6", "X-Sandbox-Pod-Ip", "10.0.0.1",
		"X-Sandbox-Namespace", "kube-system", "Connection", "X-Hop", "X-Hop", "secret", "Keep-Alive", "1", "Proxy-Authorization", "p",
		"X-Kept", "yes"}
	for method, path := range map[string]string{"GET": "/v1/sandboxes/" + id, "POST": "/v1/sandboxes", "HEAD": "/v1/sandboxes"} {
		do(t, c, method, path, forkOne, headers...)
		mu.Lock()
		for name, values := range got {
			line := strings.Join(values, ",")
			if strings.Contains(line, "6.6.6.6") || strings.Contains(line, "evil") || strings.Contains(line, "10.0.0.1") ||
				strings.Contains(line, "kube-system") || strings.Contains(line, "gopher") || strings.Contains(line, "secret") || line == "p" {
				t.Errorf("%s %s: the node got %s: %s", method, path, name, line)
			}
		}
		if got.Get("X-Kept") != "yes" || got.Get("Authorization") != "Bearer "+fakecluster.Token {
			t.Errorf("%s %s: the node got %v", method, path, got)
		}
		mu.Unlock()
	}
}

func TestListsAreMerged(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	for i, n := range c.Nodes {
		n.Daemon.Engine.Now = n.Daemon.Engine.Now.Add(time.Duration(-i) * time.Hour)
		for range 5 {
			forkOn(t, n)
		}
	}
	all := into[[]api.SandboxInfo](t, do(t, c, "GET", "/v1/sandboxes", ""), 200)
	if len(all) != 15 || all[0].CreatedAtUnix > all[14].CreatedAtUnix {
		t.Errorf("%d sandboxes in the list, from %d to %d", len(all), all[0].CreatedAtUnix, all[14].CreatedAtUnix)
	}
	there := into[[]api.SandboxInfo](t, do(t, c, "GET", "/v1/sandboxes?filter=node%3Dnode-b", ""), 200)
	for _, sb := range there {
		if sb.Node != "node-b" {
			t.Errorf("%+v is in the list of node-b", sb)
		}
	}
	if len(there) != 5 {
		t.Errorf("%d sandboxes of node-b", len(there))
	}
	tags := into[[]api.SnapshotInfo](t, do(t, c, "GET", "/v1/snapshots", ""), 200)
	if len(tags) != 1 {
		t.Errorf("a snapshot on three nodes is listed %d times", len(tags))
	}
	if r := into[[]api.Receipt](t, do(t, c, "GET", "/v1/receipts?limit=7", ""), 200); len(r) != 7 || r[0].AtUnixMS < r[6].AtUnixMS {
		t.Errorf("%d receipts", len(r))
	}
	if a := do(t, c, "GET", "/v1/sandboxes", "", "Authorization", "Bearer wrong"); a.StatusCode != 401 {
		t.Errorf("with a wrong key: %d %s", a.StatusCode, a.body)
	}
}

func TestAListWithASlowAndABrokenNode(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", func(g *gateway.Config) { g.ListTime = 2 * time.Second })
	for _, n := range c.Nodes {
		forkOn(t, n)
	}
	list := func(hook fakecluster.Hook) (answer, error) {
		c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.URL.Path == "/v1/sandboxes" {
				hook(w, r, pass)
				return
			}
			pass.ServeHTTP(w, r)
		})
		return try(t.Context(), c, "GET", "/v1/sandboxes", "")
	}
	for name, hook := range map[string]fakecluster.Hook{
		"no answer":         func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() },
		"cut off":           func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cut(w) },
		"no list":           func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { fmt.Fprint(w, `{"a":1}`) },
		"an error":          func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(500) },
		"nothing but space": func(w http.ResponseWriter, r *http.Request, _ http.Handler) { endless(w, r, "[", " ") },
		"a long element": func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			endless(w, r, `[{"id":"`, "aaaaaaaaaaaaaaaa")
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := list(hook)
			if err != nil {
				t.Fatal(err)
			}
			if n := into[[]api.SandboxInfo](t, a, 200); len(n) != 2 || a.Header.Get("Forkd-Nodes-Missing") != string(c.Nodes[0].Key) {
				t.Errorf("%d sandboxes, missing %q", len(n), a.Header.Get("Forkd-Nodes-Missing"))
			}
		})
	}
	// The status is sent already: the client must see that the list is not whole.
	a, err := list(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		fmt.Fprint(w, `[{"id":"x"},`)
		_ = http.NewResponseController(w).Flush()
		cut(w)
	})
	if err == nil && a.err == nil {
		t.Errorf("a list that broke off looks whole: %s", a.body)
	}
}

// endless sends a text again and again, until nobody reads.
func endless(w http.ResponseWriter, r *http.Request, begin, more string) {
	fmt.Fprint(w, begin)
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat(more, 1000)); err != nil {
			return
		}
	}
}

func TestEventsOfAllNodes(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	for i, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.URL.Path != "/v1/events" {
				pass.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for e := range 10 {
				fmt.Fprintf(w, "id: %d\nevent: k\ndata: {\"node\":%d,\ndata: \"e\":%d}\n\n: beat\nid: 9\n\n", e, i, e)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", c.URL+"/v1/events?after=0", nil)
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, lines := 0, bufio.NewScanner(resp.Body)
	for got < 30 && lines.Scan() {
		switch {
		case strings.HasPrefix(lines.Text(), "event: k"):
			got++
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), `data: {"node":`) || !lines.Scan() ||
				!strings.HasPrefix(lines.Text(), `data: "e":`) {
				t.Fatalf("an event is torn: %q", lines.Text())
			}
		case strings.HasPrefix(lines.Text(), "id:"):
			t.Error("the number of one node's event is in the stream of all nodes")
		}
	}
	if got != 30 {
		t.Errorf("%d events, want 30", got)
	}
	wantError(t, do(t, c, "GET", "/v1/events?after=7", ""), api.CodeInvalid, "")
}

// watch hooks a node's console route: a line, and then nothing until the client leaves.
func watch(open *atomic.Int32) fakecluster.Hook {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/console") {
			pass.ServeHTTP(w, r)
			return
		}
		open.Add(1)
		defer open.Add(-1)
		fmt.Fprintln(w, "first line")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func TestAThousandStreams(t *testing.T) {
	const most = 1000
	c := fakecluster.Start(t, 3, "py", func(g *gateway.Config) { g.MaxRequests = most })
	var open atomic.Int32
	var ids []string
	for _, n := range c.Nodes {
		n.Link.Hook(watch(&open))
		ids = append(ids, forkOn(t, n))
	}
	transport := &http.Transport{MaxConnsPerHost: 0}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan error, most)
	opening := make(chan struct{}, 50) // a burst of connections could exceed the queues of listeners
	var streams sync.WaitGroup
	for i := range most {
		streams.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", c.URL+"/v1/sandboxes/"+ids[i%3]+"/console?follow=true", nil)
			r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
			opening <- struct{}{}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				<-opening
				begun <- err
				return
			}
			defer resp.Body.Close()
			line := make([]byte, len("first line\n"))
			_, err = io.ReadFull(resp.Body, line) // it arrives although the answer has no end
			<-opening
			begun <- err
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	for range most {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	}
	if n := open.Load(); n != most {
		t.Errorf("%d streams are open at the nodes", n)
	}
	a := do(t, c, "GET", "/v1/sandboxes", "")
	wantError(t, a, api.CodeBusy, "")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if a := do(t, c, "GET", "/healthz", ""); a.StatusCode != 200 {
		t.Errorf("healthz: %d", a.StatusCode)
	}
	cancel()
	streams.Wait()
	for until := time.Now().Add(20 * time.Second); open.Load() > 0; {
		if time.Now().After(until) {
			t.Fatalf("%d streams are open at the nodes after their clients have left", open.Load())
		}
		time.Sleep(10 * time.Millisecond) // elapses: the ends of connections travel
	}
	if a := do(t, c, "GET", "/v1/sandboxes", ""); a.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", a.StatusCode, a.body)
	}
}

// A client that reads nothing does not hold a node's connection for ever.
func TestASlowReaderIsCutOff(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", func(g *gateway.Config) { g.Stall = 200 * time.Millisecond })
	id := forkOn(t, c.Nodes[0])
	ended := make(chan struct{})
	c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/console") {
			pass.ServeHTTP(w, r)
			return
		}
		endless(w, r, "", "spam spam spam spam")
		close(ended)
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/sandboxes/%s/console?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", id,
		fakecluster.Token)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the node's stream is still open")
	}
}

// A node may answer before it has the whole request, as to a program with input.
func TestANodeAnswersBeforeTheEndOfARequest(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", nil)
	path := "/v1/sandboxes/" + forkOn(t, c.Nodes[0]) + "/agent/echo"
	c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path == path {
			pass = bothways.Echo
		}
		pass.ServeHTTP(w, r)
	})
	bothways.Talk(t, http.DefaultClient, c.URL+path, http.Header{"Authorization": {"Bearer " + fakecluster.Token}})
}

// Ports, programs and uploads are streams in both directions.
func TestAPortThroughTheGateway(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	for _, n := range c.Nodes {
		n.Daemon.Engine.Ports = map[uint16]func(net.Conn){7: func(conn net.Conn) { _, _ = io.Copy(conn, conn) }}
	}
	cl, err := client.New(client.Options{URL: c.URL, Token: fakecluster.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, n := range c.Nodes {
		conn, err := cl.DialPort(t.Context(), forkOn(t, n), 7)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // each message is echoed before the next one is sent
			if _, err := io.WriteString(conn, "hello\n"); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 6)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello\n" {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("after the end of our direction: %q, %v", rest, err)
		}
		conn.Close()
	}
}

// The sandbox of a host name, or of headers, is found by the same key.
func TestServersInSandboxes(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	for _, n := range c.Nodes {
		n.Daemon.Engine.Ports = map[uint16]func(net.Conn){8888: serveName(n.Name), 80: serveName(n.Name)}
	}
	for _, n := range c.Nodes {
		id := sandbox.DNSID(forkOn(t, n))
		for name, headers := range map[string][]string{
			"host":                       {"Host", "80-" + id + "." + fakecluster.Domain},
			"host with another domain":   {"Host", "80-" + id + ".e2b.example"},
			"headers of E2B":             {"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "80"},
			"headers of the router":      {"X-Sandbox-Id", id, "X-Sandbox-Port", "80"},
			"the router's own port":      {"X-Sandbox-Id", id},
			"an id with dashes":          {"X-Sandbox-Id", sandbox.CanonicalID(id), "X-Sandbox-Pod-Ip", "10.0.0.1"},
			"host, and a forged address": {"Host", "80-" + id + "." + fakecluster.Domain, "X-Sandbox-Pod-Ip", "10.0.0.1"},
		} {
			if name == "host with another domain" {
				continue // the node's own E2B API decides about it
			}
			a := do(t, c, "GET", "/where", "", headers...)
			if a.StatusCode != 200 || a.body != n.Name {
				t.Errorf("%s of %s: %d %q", name, n.Name, a.StatusCode, a.body)
			}
		}
	}
	if a := do(t, c, "GET", "/", "", "Host", "80-sb2222222222222222aaaaa."+fakecluster.Domain); a.StatusCode != 404 && a.StatusCode != 502 {
		t.Errorf("a forged key: %d %s", a.StatusCode, a.body)
	}
}

// serveName is a server in a sandbox that answers with a name.
func serveName(name string) func(net.Conn) {
	return func(conn net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\nX-Path: %s\r\n\r\n%s", len(name), r.URL.Path, name)
		}
	}
}

func TestE2BThroughTheGateway(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	key := []string{"X-API-KEY", fakecluster.Token, "Authorization", ""}
	type created struct {
		ID string `json:"sandboxID"`
	}
	made := map[string]bool{}
	for range 12 {
		made[into[created](t, do(t, c, "POST", "/v2/sandboxes", `{"templateID":"py"}`, key...), 201).ID] = true
		made[into[created](t, do(t, c, "POST", "/sandboxes", `{"templateID":"py","timeout":100}`, key...), 201).ID] = true
	}
	if n := c.Sandboxes(); sum(n) != 24 || len(made) != 24 {
		t.Errorf("the nodes have %v sandboxes", n)
	}
	if all := into[[]created](t, do(t, c, "GET", "/sandboxes", "", key...), 200); len(all) != 24 {
		t.Errorf("%d in the list", len(all))
	}
	listed, token := map[string]bool{}, ""
	for pages := 0; ; pages++ {
		a := do(t, c, "GET", "/v2/sandboxes?limit=5&nextToken="+token, "", key...)
		for _, s := range into[[]created](t, a, 200) {
			listed[s.ID] = true
		}
		if token = a.Header.Get("X-Next-Token"); token == "" || pages > 30 {
			break
		}
	}
	if len(listed) != 24 {
		t.Errorf("%d in the pages", len(listed))
	}
	for id := range made {
		if a := do(t, c, "DELETE", "/sandboxes/"+id, "", key...); a.StatusCode != 204 {
			t.Errorf("delete %s: %d %s", id, a.StatusCode, a.body)
		}
	}
	if n := c.Sandboxes(); sum(n) != 0 {
		t.Errorf("the nodes have %v sandboxes", n)
	}
	if a := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"py"}`, "X-API-KEY", "wrong", "Authorization", ""); a.StatusCode != 401 {
		t.Errorf("with a wrong key: %d %s", a.StatusCode, a.body)
	}
}

func TestAForkWithAVolumeGoesToTheVolumesNode(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	const fork = `{"snapshot_tag":"py","volumes":[{"name":"data","path":"/data"}]}`
	wantError(t, do(t, c, "POST", "/v1/sandboxes", fork), api.CodeUnsupported, "")
	if a := do(t, c, "POST", "/v1/volumes", `{"name":"data","size_mib":64}`, "Forkd-Node", "node-b"); a.StatusCode != 201 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	wantError(t, do(t, c, "POST", "/v1/sandboxes", fork, "Forkd-Node", "node-c"), api.CodeNotFound, "volume_not_found")
	made := into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", fork, "Forkd-Node", "node-b"), 201)
	if len(made) != 1 || len(made[0].Volumes) != 1 {
		t.Errorf("%+v", made)
	}
}

func TestRequestsAboutANode(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	wantError(t, do(t, c, "GET", "/v1/capacity", ""), api.CodeUnsupported, "")
	if n := into[api.Node](t, do(t, c, "GET", "/v1/node", "", "Forkd-Node", "node-b"), 200); n.Name != "node-b" {
		t.Errorf("it is %s", n.Name)
	}
	wantError(t, do(t, c, "GET", "/v1/node", "", "Forkd-Node", "node-z"), api.CodeNotFound, "")
	if a := do(t, c, "GET", "/v1/node", "", "Forkd-Node", "node-b", "Authorization", ""); a.StatusCode != 401 {
		t.Errorf("without a key: %d", a.StatusCode)
	}
}

func TestSandboxesOfSeveralNodesAreNotCompared(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	a, b := forkOn(t, c.Nodes[0]), forkOn(t, c.Nodes[1])
	body := func(ids ...string) string {
		list, _ := json.Marshal(ids)
		return fmt.Sprintf(`{"ids":%s,"best":1,"args":["echo","1"]}`, list)
	}
	wantError(t, do(t, c, "POST", "/v1/sandboxes/keep", body(a, b)), api.CodeInvalid, "")
	if r := do(t, c, "POST", "/v1/sandboxes/keep", body(b)); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

func TestDeletionReachesAllCopies(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", nil)
	if a := do(t, c, "DELETE", "/v1/snapshots/py", ""); a.StatusCode != 204 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	for _, n := range c.Nodes {
		if list, _ := n.Daemon.Engine.ListSnapshots(t.Context()); len(list) > 0 {
			t.Errorf("%s still has it", n.Name)
		}
	}
}

func TestBodiesInMemoryAreBounded(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", func(g *gateway.Config) { g.MaxBuffered = 1 << 20 })
	big := `{"snapshot_tag":"py","env":{"A":"` + strings.Repeat("x", 2<<20) + `"}}`
	wantError(t, do(t, c, "POST", "/v1/sandboxes", big), api.CodeBusy, "")
	into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201)
	other := fakecluster.Start(t, 1, "py", nil)
	wantError(t, do(t, other, "POST", "/v1/sandboxes", strings.Repeat(" ", 17<<20)), api.CodeTooLarge, "")
}

func TestReadiness(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	if a := do(t, c, "GET", "/readyz", "", "Authorization", ""); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	c.WriteList(t, c.Nodes[0], c.Nodes[0]) // the same name twice
	for until := time.Now().Add(10 * time.Second); do(t, c, "GET", "/readyz", "").StatusCode == 200; {
		if time.Now().After(until) {
			t.Fatal("still ready with an invalid list")
		}
		time.Sleep(10 * time.Millisecond) // elapses: the file is looked at with its own pace
	}
	into[[]api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes", forkOne), 201) // the former list stays in use
	c.WriteList(t, c.Nodes[0])
	c.Await(t, 1)
	for until := time.Now().Add(10 * time.Second); do(t, c, "GET", "/readyz", "").StatusCode != 200; {
		if time.Now().After(until) {
			t.Fatal("not ready with a valid list")
		}
		time.Sleep(10 * time.Millisecond) // elapses: as above
	}
	c.Gateway.Close()
	if a := do(t, c, "GET", "/readyz", ""); a.StatusCode != 503 {
		t.Errorf("while it shuts down: %d", a.StatusCode)
	}
}

// A client that does not send the rest of its body does not hold a place for ever.
func TestASlowBodyIsRefused(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", func(g *gateway.Config) { g.BodyTime = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{",
		fakecluster.Token)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A node refuses a request before its body has arrived: the client gets the answer, and the gateway its place back.
func TestARefusalBeforeTheBody(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", func(g *gateway.Config) { g.MaxRequests = 1 })
	id := forkOn(t, c.Nodes[0])
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n"+
		"Content-Length: 100\r\n\r\n{", id)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", resp.StatusCode)
	}
	for until := time.Now().Add(20 * time.Second); do(t, c, "GET", "/version", "").StatusCode != 200; {
		if time.Now().After(until) {
			t.Fatal("the place is still taken")
		}
		time.Sleep(50 * time.Millisecond) // elapses: the rest of the body has a time of its own
	}
}

// The target of a request line cannot lead to another host.
func TestTargetsThatNameAHost(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", nil)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the gateway sent %s %s to another host", r.Method, r.URL)
	}))
	defer other.Close()
	host := strings.TrimPrefix(other.URL, "http://")
	for target, want := range map[string]int{
		"http://" + host + "/v1/sandboxes": 200, "http://" + host + "/version": 200, "//" + host + "/v1/sandboxes": 0,
		"x:@" + host + "/v1/sandboxes": 400, "http:@" + host + "/v1/sandboxes": 400, "http://@" + host: 0,
		"/v1/sandboxes?u=@" + host: 200, "/v1/snapshots/@" + host + "/info": 0,
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", target,
			fakecluster.Token)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if want != 0 && resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, resp.StatusCode, want)
		}
		resp.Body.Close()
		conn.Close()
	}
}
