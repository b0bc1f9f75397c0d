package network_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// wantRate checks that a sandbox is bound with a bandwidth limit.
func wantRate(t *testing.T, n *enginefake.Net, id string, mib int64) {
	t.Helper()
	bound := n.Of(id)
	if len(bound) != 1 || bound[0].Spec.Limits.BytesPerSecond != mib<<20 {
		t.Errorf("%s is bound as %+v, want %d MiB/s", id, bound, mib)
	}
}

func TestANetworkLimitStaysWithTheSandbox(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2, Network: &enginefake.PublicNet, Limits: sandbox.Limits{NetMiB: 3}})
	if err != nil {
		t.Fatal(err)
	}
	id := r.Children[0].Info.ID
	wantRate(t, n, id, 3)
	wantRate(t, n, r.Children[1].Info.ID, 3)
	wantPolicy(h, e, id, sandbox.PolicyPublic)

	spec := enginefake.PublicNet
	for _, mib := range []int64{1, 3} { // first with a limit in its policy, then without
		if spec.Limits.BytesPerSecond = 1 << 20; mib == 3 {
			spec.Limits.BytesPerSecond = 0
		}
		if _, err := e.SetNetwork(t.Context(), id, sandbox.NetworkRequest{Policy: spec}); err != nil {
			t.Fatal(err)
		}
		wantRate(t, n, id, mib)
	}
	if _, err := e.Rollback(t.Context(), id, "a"); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "release of the old VM's wire", func() bool { return len(n.Of(id)) == 1 })
	wantRate(t, n, id, 3)

	h.Close(e)
	e = h.Open() // the next daemon
	enginefake.Eventually(t, "a connection to forkd-net", func() bool { return len(n.Of(id)) == 1 })
	wantRate(t, n, id, 3)
	if got, err := e.Network(id); err != nil || got.Effective.Limits.BytesPerSecond != 3<<20 {
		t.Errorf("the next daemon has %+v, %v", got.Effective, err)
	}
	n.Kill() // and with the next forkd-net
	enginefake.Eventually(t, "wires at the next forkd-net", func() bool { return len(n.Of(id)) == 1 })
	wantRate(t, n, id, 3)

	b, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "b"})
	if err != nil {
		t.Fatal(err)
	}
	child := enginefake.ForkNet(h, e, b.Tag, 1, nil)[0]
	wantRate(t, n, child.ID, 3)
}

// wantTree checks that sandboxes are bound in the tree of that root, each with one wire.
func wantTree(t *testing.T, n *enginefake.Net, root string, mib int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		enginefake.Eventually(t, "one wire of "+id, func() bool { return len(n.Of(id)) == 1 })
		if got, want := n.Of(id)[0].Tree, (sandbox.NetTree{Root: root, BytesPerSecond: mib << 20}); got != want {
			t.Errorf("%s is bound in tree %+v, want %+v", id, got, want)
		}
	}
}

func TestATreesNetworkLimitIsOneForAllOfIt(t *testing.T) {
	h, n := enginefake.NetHost(t)
	g := &enginefake.GuestBench{Host: h, E: h.Open()}
	h.Snapshot(g.E, "a")
	r, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2, Network: &enginefake.PublicNet, GuestFork: true,
		Limits: sandbox.Limits{NetMiB: 2, Tree: sandbox.TreeBudget{NetMiB: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	root, other := r.Children[0].Info.ID, r.Children[1].Info.ID
	tree := append(g.Forked(root, 2), root)
	tree = append(tree, g.Forked(tree[0], 1)...)
	wantTree(t, n, root, 4, tree...)
	wantTree(t, n, other, 4, other)
	wantRate(t, n, tree[3], 2) // plus its own

	if _, err := g.E.SetNetwork(t.Context(), tree[0], sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.E.Rollback(t.Context(), root, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.E.Pause(t.Context(), tree[1], sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.E.Resume(t.Context(), tree[1]); err != nil {
		t.Fatal(err)
	}
	wantTree(t, n, root, 4, tree...)

	h.Close(g.E)
	g.E = h.Open() // the next daemon
	n.Kill()       // and the next forkd-net
	wantTree(t, n, root, 4, tree...)
	wantTree(t, n, root, 4, g.Forked(tree[0], 1)...)
}

// The policy denied everything when its tree began.
func TestAPolicyThatComesLaterIsWithinTheTreesLimit(t *testing.T) {
	h, n := enginefake.NetHost(t)
	g := &enginefake.GuestBench{Host: h, E: h.Open()}
	h.Snapshot(g.E, "a")
	r, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true,
		Limits: sandbox.Limits{Tree: sandbox.TreeBudget{NetMiB: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	root := r.Children[0].Info.ID
	child := g.Forked(root, 1)[0]
	if got := len(n.Of(root)) + len(n.Of(child)); got != 0 {
		t.Fatalf("%d are bound", got)
	}
	if _, err := g.E.SetNetwork(t.Context(), child, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	wantTree(t, n, root, 4, child)
}

func TestATapHasNoNetworkLimit(t *testing.T) {
	h, _ := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	for _, l := range []sandbox.Limits{{NetMiB: 3}, {Tree: sandbox.TreeBudget{NetMiB: 3}}} {
		_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0", GuestFork: true, Limits: l})
		if !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
