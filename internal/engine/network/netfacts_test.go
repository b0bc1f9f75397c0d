package network_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

var resolved = []netpolicy.Exported{
	{Name: "example.org", Addr: netip.MustParseAddr("198.51.100.7"), Seconds: 3000},
	{Name: "example.org", Addr: netip.MustParseAddr("2001:db8::7"), Seconds: 2000},
}

// wantFacts checks the facts that the only VM of a sandbox is bound with.
func wantFacts(n *enginefake.Net, id string, want []netpolicy.Exported) {
	n.T.Helper()
	bound := n.Of(id)
	if len(bound) != 1 || len(bound[0].Facts) != len(want) {
		n.T.Fatalf("%s is bound as %+v, want the facts %+v", id, bound, want)
	}
	for i, f := range bound[0].Facts { // a second may have passed
		if f.Name != want[i].Name || f.Addr != want[i].Addr || f.Seconds > want[i].Seconds {
			n.T.Errorf("%s begins with %+v, want %+v", id, f, want[i])
		}
	}
}

func branchNet(h *enginefake.Host, e *engine.Engine, id, tag string, spec *netpolicy.Spec) {
	h.T.Helper()
	if _, err := e.Branch(h.T.Context(), sandbox.BranchRequest{SandboxID: id, Tag: tag, Network: spec}); err != nil {
		h.T.Fatal(err)
	}
}

func TestClonesBeginWithWhatTheirSourceHadResolved(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.SomeNet)[0].ID
	wantFacts(n, sb, nil)
	n.Mu.Lock()
	n.Resolved = slices.Clone(resolved)
	slices.Reverse(n.Resolved)
	n.Mu.Unlock()
	branchNet(h, e, sb, "b", nil)
	branchNet(h, e, sb, "other", &enginefake.PublicNet)
	n.Mu.Lock()
	n.Resolved = nil
	n.Mu.Unlock()
	for _, child := range enginefake.ForkNet(h, e, "b", 2, nil) {
		wantFacts(n, child.ID, resolved)
	}
	wantFacts(n, enginefake.ForkNet(h, e, "other", 1, nil)[0].ID, nil)
	if _, err := e.Rollback(t.Context(), sb, "b"); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "release of the old VM", func() bool { return len(n.Of(sb)) == 1 })
	wantFacts(n, sb, resolved)
	n.Kill()
	enginefake.Eventually(t, "a new wire", func() bool { return len(n.Of(sb)) == 1 })
	wantFacts(n, sb, resolved)
}

func TestASnapshotKeepsFewOfManyNames(t *testing.T) {
	h, n := enginefake.NetHost(t)
	for i := range 3 * snapshot.MaxNetworkFacts {
		n.Resolved = append(n.Resolved, netpolicy.Exported{Name: fmt.Sprintf("n%d.test", i), Addr: resolved[0].Addr, Seconds: 100 + i})
	}
	e := h.Open()
	h.Snapshot(e, "a")
	branchNet(h, e, enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0].ID, "b", nil)
	got := n.Of(enginefake.ForkNet(h, e, "b", 1, nil)[0].ID)[0].Facts
	if len(got) != snapshot.MaxNetworkFacts || got[0].Seconds < 100+2*snapshot.MaxNetworkFacts {
		t.Errorf("%d names, the first of which is %+v", len(got), got[0])
	}
}
