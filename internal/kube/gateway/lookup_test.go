package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// A client that asks for many objects fills no node with its questions, so that others get their answers.
func TestAHostileClientFillsNoNodeWithQuestions(t *testing.T) {
	const (
		slow     = 500 * time.Millisecond
		capacity = 70 // requests that a node serves at once
	)
	for name, attack := range map[string]struct {
		address string
		status  int // of its credentials at the nodes
		tokens  int // its credentials
		most    int64
		path    string
	}{
		"one credential":                       {"127.0.0.2", http.StatusNotFound, 1, 16, "/v1/images/none-%d"},
		"one credential, the same address":     {"127.0.0.1", http.StatusNotFound, 1, 16, "/v1/workspaces/none-%d"},
		"many credentials of tenants":          {"127.0.0.2", http.StatusNotFound, 100, 48, "/v1/snapshots/none-%d"},
		"forged credentials, the same address": {"127.0.0.1", http.StatusUnauthorized, 1 << 30, 8, "/templates/none-%d"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakecluster.Start(t, 3, "py", nil)
			var now, most atomic.Int64
			for _, n := range c.Nodes {
				slots := make(chan struct{}, capacity)
				n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
					if r.URL.Path == "/v1/node" { // the polls of the set
						pass.ServeHTTP(w, r)
						return
					}
					slots <- struct{}{}
					defer func() { <-slots }()
					if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer hostile") {
						pass.ServeHTTP(w, r)
						return
					}
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(slow) // elapses: a slow node
					now.Add(-1)
					w.WriteHeader(attack.status)
				})
			}
			honest := from(t, "127.0.0.1")
			ask := func() {
				began := time.Now()
				status, err := askFor(t.Context(), honest, c, "/v1/snapshots/py/info", fakecluster.Token)
				if took := time.Since(began); status != 200 || err != nil || took > 6*slow {
					t.Errorf("%d, %v after %v", status, err, took)
				}
			}
			ask() // its credential is known to the gateway
			ctx, stop := context.WithCancel(t.Context())
			hostile := from(t, attack.address)
			var attackers sync.WaitGroup
			defer attackers.Wait()
			defer stop()
			for i := range 250 {
				attackers.Go(func() {
					for k := 0; ctx.Err() == nil; k++ {
						token := fmt.Sprintf("hostile-%020d", (i+250*k)%attack.tokens)
						_, _ = askFor(ctx, hostile, c, fmt.Sprintf(attack.path, i), token)
					}
				})
			}
			for until := time.Now().Add(20 * time.Second); most.Load() < attack.most/2; {
				if time.Now().After(until) {
					t.Fatalf("the attack asks %d questions at once", most.Load())
				}
				time.Sleep(10 * time.Millisecond) // elapses: the attack begins
			}
			for range 5 {
				ask()
			}
			// Each lookup asks the three nodes at the same time, and its forwarded request one.
			if n := most.Load(); n > 3*attack.most+attack.most {
				t.Errorf("%d questions at once", n)
			}
		})
	}
}

// A credential that the nodes do not know costs one question, and its client gets the answer of that node. A new one
// that they know finds an object of any node.
func TestTheQuestionsOfANewCredential(t *testing.T) {
	c := fakecluster.Start(t, 4, "", nil)
	into[api.SnapshotInfo](t, do(t, c, "POST", "/v1/snapshots", `{"tag":"only","image":"python-numpy"}`), 201)
	last := c.Nodes[len(c.Nodes)-1]
	image := "/v1/images/of-one"
	var asked atomic.Int64
	for _, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.URL.Path == image {
				if asked.Add(1); n == last && r.Header.Get("Authorization") == "Bearer "+fakecluster.Token {
					_, _ = io.WriteString(w, `{"name":"of-one"}`)
					return
				}
			}
			pass.ServeHTTP(w, r)
		})
	}
	forged := do(t, c, "GET", image, "", "Authorization", "Bearer "+strings.Repeat("7", 32))
	if n := asked.Swap(0); forged.StatusCode != http.StatusUnauthorized || n != 2 {
		t.Errorf("a forged credential: %d after %d requests, want the question and the request itself", forged.StatusCode, n)
	}
	other := c.Another(t) // it knows no credential
	for range 2 {
		a := do(t, other, "GET", image, "")
		if n := asked.Swap(0); a.StatusCode != 200 || n != int64(len(c.Nodes))+1 {
			t.Errorf("%d %s after %d requests", a.StatusCode, a.body, n)
		}
	}
	if a := do(t, other, "GET", "/v1/snapshots/only/info", ""); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
