package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// movedAndDead returns a cluster whose first node is dead, and sandboxes that other nodes have taken before.
func movedAndDead(t *testing.T, nodes, n int) (c *fakecluster.Cluster, ids []string) {
	t.Helper()
	c = fakecluster.Start(t, nodes, "py", nil)
	for range n {
		id := forkOn(t, c.Nodes[0])
		into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/pause", `{}`), 200)
		ids = append(ids, id)
	}
	drainFirst(t, c)
	for _, id := range ids {
		into[api.SandboxInfo](t, do(t, c, "POST", "/v1/sandboxes/"+id+"/resume", `{}`), 200)
	}
	c.Nodes[0].Link.Hook(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	c.Await(t, nodes-1)
	return c.Another(t), ids
}

// from returns a client with an address.
func from(t *testing.T, address string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	tr := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// askFor sends a request for an object.
func askFor(ctx context.Context, from *http.Client, c *fakecluster.Cluster, path, token string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", c.URL+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := from.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// A client that sends many ids with many credentials holds up only itself: others wait for no search of its, even if
// each takes long.
func TestAHostileClientHoldsUpNoSearchOfOthers(t *testing.T) {
	const slow = 500 * time.Millisecond
	for name, attack := range map[string]struct {
		address string
		status  int // of its credentials at the nodes
	}{
		"another address, credentials of tenants": {"127.0.0.2", http.StatusNotFound},
		"another address, forged credentials":     {"127.0.0.2", http.StatusUnauthorized},
		"the same address, forged credentials":    {"127.0.0.1", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			c, ids := movedAndDead(t, 3, 5)
			var asked atomic.Int64
			for _, n := range c.Nodes[1:] {
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer hostile") {
						pass.ServeHTTP(w, r)
						return
					}
					asked.Add(1)
					time.Sleep(slow) // elapses: a slow node
					w.WriteHeader(attack.status)
				})
			}
			honest := from(t, "127.0.0.1")
			// Its credential is known to the gateway by an earlier search.
			if status, err := askFor(t.Context(), honest, c, "/v1/sandboxes/"+ids[0], fakecluster.Token); status != 200 || err != nil {
				t.Fatal(status, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			hostile := from(t, attack.address)
			var attackers sync.WaitGroup
			defer attackers.Wait()
			defer stop()
			for i := range 60 {
				attackers.Go(func() {
					for k := 0; ctx.Err() == nil; k++ {
						id := fmt.Sprintf("sb-%08d%08d", i, k)[:19] + string(c.Nodes[0].Key)
						id = strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(id[:19]) + id[19:]
						_, _ = askFor(ctx, hostile, c, "/v1/sandboxes/"+id, fmt.Sprintf("hostile-%020d-%d", i, k))
					}
				})
			}
			for until := time.Now().Add(20 * time.Second); asked.Load() < 2; {
				if time.Now().After(until) {
					t.Fatal("the attack does not search")
				}
				time.Sleep(10 * time.Millisecond) // elapses: the attack begins
			}
			for _, id := range ids[1:] {
				began := time.Now()
				status, err := askFor(t.Context(), honest, c, "/v1/sandboxes/"+id, fakecluster.Token)
				if took := time.Since(began); status != 200 || err != nil || took > 3*slow {
					t.Errorf("%d, %v after %v", status, err, took)
				}
			}
		})
	}
}

// Equal searches share one, and one without success is remembered for a while.
func TestEqualSearchesAreOne(t *testing.T) {
	c, ids := movedAndDead(t, 3, 1)
	unknown := ids[0][:4] + strings.Repeat("a", 15) + string(c.Nodes[0].Key)
	if sandbox.NodeKeyIn(unknown) != c.Nodes[0].Key {
		t.Fatal(unknown)
	}
	for id, status := range map[string]int{ids[0]: 200, unknown: api.CodeGuestGone.Status()} {
		var asked atomic.Int64
		for _, n := range c.Nodes[1:] {
			n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/sandboxes/"+id) {
					asked.Add(1)
					time.Sleep(300 * time.Millisecond) // elapses: the requests come together
				}
				pass.ServeHTTP(w, r)
			})
		}
		var requests sync.WaitGroup
		for range 50 {
			requests.Go(func() {
				a, err := try(t.Context(), c, "DELETE", "/v1/sandboxes/"+id+"/none", "")
				if err != nil || a.StatusCode == http.StatusServiceUnavailable {
					t.Error(a.StatusCode, err)
				}
			})
		}
		requests.Wait()
		if a := do(t, c, "GET", "/v1/sandboxes/"+id, ""); a.StatusCode != status {
			t.Errorf("%d %s", a.StatusCode, a.body)
		}
		limit := int64(2) // one search
		if status == 200 {
			limit++ // and the last request
		}
		if n := asked.Load(); n == 0 || n > limit {
			t.Errorf("the nodes were asked %d times for %s", n, id)
		}
	}
}

// Searches that find no turn in time are refused with a reason, and do not pile up.
func TestSearchesThatWaitTooLong(t *testing.T) {
	c := fakecluster.Start(t, 3, "py", func(cfg *gateway.Config) { cfg.ListTime = 20 * time.Second })
	id := forkOn(t, c.Nodes[0])
	c.Nodes[0].Link.Hook(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	c.Await(t, 2)
	for _, n := range c.Nodes[1:] {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if strings.Contains(r.URL.Path, "/sandboxes/") {
				time.Sleep(1500 * time.Millisecond) // elapses: a search asks two nodes, longer than the wait for a turn
			}
			pass.ServeHTTP(w, r)
		})
	}
	var busy, others atomic.Int64
	var requests sync.WaitGroup
	began := time.Now()
	for i := range 100 {
		requests.Go(func() {
			other := fmt.Sprintf("%s%c%c%s", id[:4], 'a'+i%26, 'a'+i/26, id[6:])
			a, err := try(t.Context(), c, "GET", "/v1/sandboxes/"+other, "")
			switch {
			case err != nil:
				t.Error(err)
			case a.StatusCode == api.CodeBusy.Status() && strings.Contains(a.body, "repeat the request"):
				if busy.Add(1); time.Since(began) > 6*time.Second {
					t.Error("the refusal was late")
				}
			default:
				others.Add(1)
			}
		})
	}
	requests.Wait()
	if busy.Load() != 99 || others.Load() != 1 {
		t.Errorf("%d busy, %d other answers", busy.Load(), others.Load())
	}
}
