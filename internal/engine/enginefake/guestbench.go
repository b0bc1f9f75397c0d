package enginefake

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// GuestBench is an engine with one sandbox that may fork itself.
type GuestBench struct {
	*Host
	E    *engine.Engine
	Root sandbox.Info
	next int
}

// NewGuestBench opens an engine with the changed configuration.
func NewGuestBench(t *testing.T, change ...func(*engine.Config)) *GuestBench {
	t.Helper()
	h := NewHost(t)
	for _, c := range change {
		c(&h.Cfg)
	}
	g := &GuestBench{Host: h, E: h.Open()}
	h.Snapshot(g.E, "a")
	r, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(err, r)
	}
	g.Root = r.Children[0].Info
	return g
}

// Token returns a token that no call has had.
func (g *GuestBench) Token() string {
	g.next++
	return TokenOf(g.next)
}

// TokenOf returns the test's n-th token.
func TokenOf(n int) string { return fmt.Sprintf("%08x%024x", n, n) }

// Call makes a sandbox's guest call the host, and returns the answer.
func (g *GuestBench) Call(id string, c Call) forkwire.Answer {
	g.T.Helper()
	a, err := g.TryCall(id, c)
	if err != nil {
		g.T.Fatal(err)
	}
	return a
}

// TryCall is Call for a guest that may be unable to call.
func (g *GuestBench) TryCall(id string, c Call) (a forkwire.Answer, err error) {
	b, err := json.Marshal(c)
	if err != nil {
		return a, err
	}
	r, err := g.E.Eval(context.Background(), id, sandbox.EvalRequest{Code: "call " + string(b)})
	if err != nil || r.Error != "" {
		return a, fmt.Errorf("%s calls: %w: %s", id, err, r.Error)
	}
	if r.Result != "" {
		err = json.Unmarshal([]byte(r.Result), &a)
	}
	return a, err
}

// Fork makes a sandbox's guest ask for n children.
func (g *GuestBench) Fork(id string, n int) forkwire.Answer {
	g.T.Helper()
	return g.Call(id, Call{Req: forkwire.Request{Op: forkwire.OpFork, N: n, Token: g.Token()}})
}

// Forked is fork, but must succeed. It returns the children's ids.
func (g *GuestBench) Forked(id string, n int) []string {
	g.T.Helper()
	a := g.Fork(id, n)
	if a.Error != nil || len(a.Children) != n {
		g.T.Fatalf("fork of %s: %+v, %v", id, a, a.Error)
	}
	var ids []string
	for _, c := range a.Children {
		if c.Error != "" {
			g.T.Fatalf("child %d: %s", c.Index, c.Error)
		}
		ids = append(ids, c.ID)
	}
	return ids
}

// Transient returns the tags of intermediate snapshots.
func (g *GuestBench) Transient() []string {
	g.T.Helper()
	list, err := g.E.ListSnapshots(context.Background())
	if err != nil {
		g.T.Fatal(err)
	}
	var out []string
	for _, s := range list {
		if s.Transient {
			out = append(out, s.Tag)
		}
	}
	return out
}

// NoneTransient waits until no intermediate snapshot is left.
func (g *GuestBench) NoneTransient() {
	g.T.Helper()
	Eventually(g.T, "end of the snapshots in between", func() bool { return len(g.Transient()) == 0 })
}

// StoredIs waits for the end of a running deletion.
func (g *GuestBench) StoredIs(want string) {
	g.T.Helper()
	Eventually(g.T, "store with "+want, func() bool { return g.Stored() == want })
}
