package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

var resolved = []netpolicy.Exported{
	{Name: "example.org", Addr: netip.MustParseAddr("198.51.100.7"), Seconds: 3000},
	{Name: "example.org", Addr: netip.MustParseAddr("2001:db8::7"), Seconds: 2000},
}

// wantFacts checks the facts that the only VM of a sandbox is bound with.
func (n *fakeNet) wantFacts(id string, want []netpolicy.Exported) {
	n.t.Helper()
	bound := n.of(id)
	if len(bound) != 1 || len(bound[0].Facts) != len(want) {
		n.t.Fatalf("%s is bound as %+v, want the facts %+v", id, bound, want)
	}
	for i, f := range bound[0].Facts { // a second may have passed
		if f.Name != want[i].Name || f.Addr != want[i].Addr || f.Seconds > want[i].Seconds {
			n.t.Errorf("%s begins with %+v, want %+v", id, f, want[i])
		}
	}
}

func (h *host) branchNet(e *Engine, id, tag string, spec *netpolicy.Spec) {
	h.t.Helper()
	if _, err := e.Branch(h.t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: tag, Network: spec}); err != nil {
		h.t.Fatal(err)
	}
}

func TestClonesBeginWithWhatTheirSourceHadResolved(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkNet(e, "a", 1, &someNet)[0].ID
	n.wantFacts(sb, nil)
	n.mu.Lock()
	n.resolved = slices.Clone(resolved)
	slices.Reverse(n.resolved)
	n.mu.Unlock()
	h.branchNet(e, sb, "b", nil)
	h.branchNet(e, sb, "other", &publicNet)
	n.mu.Lock()
	n.resolved = nil
	n.mu.Unlock()
	for _, child := range h.forkNet(e, "b", 2, nil) {
		n.wantFacts(child.ID, resolved)
	}
	n.wantFacts(h.forkNet(e, "other", 1, nil)[0].ID, nil)
	if _, err := e.Rollback(t.Context(), sb, "b"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release of the old VM", func() bool { return len(n.of(sb)) == 1 })
	n.wantFacts(sb, resolved)
	n.kill()
	eventually(t, "a new wire", func() bool { return len(n.of(sb)) == 1 })
	n.wantFacts(sb, resolved)
}

func TestASnapshotKeepsFewOfManyNames(t *testing.T) {
	h, n := netHost(t)
	for i := range 3 * snapshot.MaxNetworkFacts {
		n.resolved = append(n.resolved, netpolicy.Exported{Name: fmt.Sprintf("n%d.test", i), Addr: resolved[0].Addr, Seconds: 100 + i})
	}
	e := h.open()
	h.snapshot(e, "a")
	h.branchNet(e, h.forkNet(e, "a", 1, &publicNet)[0].ID, "b", nil)
	got := n.of(h.forkNet(e, "b", 1, nil)[0].ID)[0].Facts
	if len(got) != snapshot.MaxNetworkFacts || got[0].Seconds < 100+2*snapshot.MaxNetworkFacts {
		t.Errorf("%d names, the first of which is %+v", len(got), got[0])
	}
}
