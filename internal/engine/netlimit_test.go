package engine

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/sandbox"
)

// wantRate wants a sandbox to be bound with a bandwidth limit.
func wantRate(t *testing.T, n *fakeNet, id string, mib int64) {
	t.Helper()
	bound := n.of(id)
	if len(bound) != 1 || bound[0].Spec.Limits.BytesPerSecond != mib<<20 {
		t.Errorf("%s is bound as %+v, want %d MiB/s", id, bound, mib)
	}
}

func TestANetworkLimitStaysWithTheSandbox(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2, Network: &publicNet, Limits: sandbox.Limits{NetMiB: 3}})
	if err != nil {
		t.Fatal(err)
	}
	id := r.Children[0].Info.ID
	wantRate(t, n, id, 3)
	wantRate(t, n, r.Children[1].Info.ID, 3)
	h.wantPolicy(e, id, sandbox.PolicyPublic)

	spec := publicNet
	for _, mib := range []int64{1, 3} { // its policy's own; its policy has none
		if spec.Limits.BytesPerSecond = 1 << 20; mib == 3 {
			spec.Limits.BytesPerSecond = 0
		}
		if _, err := e.SetNetwork(t.Context(), id, spec); err != nil {
			t.Fatal(err)
		}
		wantRate(t, n, id, mib)
	}
	if _, err := e.Rollback(t.Context(), id, "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release of the old VM's wire", func() bool { return len(n.of(id)) == 1 })
	wantRate(t, n, id, 3)

	h.close(e)
	e = h.open() // the next daemon
	eventually(t, "a connection to forkd-net", func() bool { return len(n.of(id)) == 1 })
	wantRate(t, n, id, 3)
	if got, err := e.Network(id); err != nil || got.Effective.Limits.BytesPerSecond != 3<<20 {
		t.Errorf("the next daemon has %+v, %v", got.Effective, err)
	}
	n.kill() // and with the next forkd-net
	eventually(t, "wires at the next forkd-net", func() bool { return len(n.of(id)) == 1 })
	wantRate(t, n, id, 3)

	b, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "b"})
	if err != nil {
		t.Fatal(err)
	}
	child := h.forkNet(e, b.Tag, 1, nil)[0]
	wantRate(t, n, child.ID, 3)
}

func TestATapHasNoNetworkLimit(t *testing.T) {
	h, _ := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0", Limits: sandbox.Limits{NetMiB: 3}})
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
