package op_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// joined forks a member without any other network.
func joined(h *enginefake.Host, e *engine.Engine, tag, network, alias string) sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Join: &sandbox.NetJoin{Network: network, Alias: alias}})
	if err != nil {
		h.T.Fatal(err)
	}
	if r.Children[0].Err != nil {
		h.T.Fatal(r.Children[0].Err)
	}
	return r.Children[0].Info
}

// wantMember checks what forkd-net knows of a sandbox.
func wantMember(t *testing.T, n *enginefake.Net, id string, want sandbox.Member) {
	t.Helper()
	enginefake.Eventually(t, "its membership at forkd-net", func() bool {
		bound := n.Of(id)
		return len(bound) == 1 && bound[0].Member != nil && *bound[0].Member == want
	})
}

func TestAMembershipOutlivesWhatASandboxOutlives(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	if _, err := e.TenantNetworks().Create("", "shop"); err != nil {
		t.Fatal(err)
	}
	db := joined(h, e, "a", "shop", "db")
	member := *db.Network.Member
	if member.Network != "shop" || member.Alias != "db" || db.Network.Policy() != sandbox.PolicyNone {
		t.Fatalf("it has %+v", db.Network)
	}
	wantMember(t, n, db.ID, member)

	if _, err := e.SetNetwork(t.Context(), db.ID, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	wantMember(t, n, db.ID, member)
	n.Kill()
	wantMember(t, n, db.ID, member)
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	n.Kill()
	wantMember(t, n, db.ID, member)
	if got, err := e.TenantNetworks().Get("", "shop"); err != nil || len(got.Members) != 1 || got.Members[0].Sandbox != db.ID {
		t.Errorf("after a restart the network is %+v, %v", got, err)
	}
	other := joined(h, e, "a", "shop", "")
	if m := other.Network.Member; m.Alias != other.ID || m.Addr == member.Addr {
		t.Errorf("another member is %+v", m)
	}
	if err := e.Kill(t.Context(), db.ID); err != nil {
		t.Fatal(err)
	}
	if again := joined(h, e, "a", "shop", "db"); again.Network.Member.Addr == member.Addr {
		t.Error("the address of a member that has just left is given again")
	}
}

func TestForksThatJoinNothing(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	nets := e.TenantNetworks()
	if _, err := nets.Create("acme", "shop"); err != nil {
		t.Fatal(err)
	}
	if _, err := nets.Create("", "own"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  sandbox.ForkRequest
		want error
	}{
		"a network of a tenant": {sandbox.ForkRequest{N: 1, Join: &sandbox.NetJoin{Network: "shop"}}, sandbox.ErrNotFound},
		"two with one alias":    {sandbox.ForkRequest{N: 2, Join: &sandbox.NetJoin{Network: "own", Alias: "db"}}, sandbox.ErrInvalid},
		"a broken policy": {sandbox.ForkRequest{N: 1, Network: &netpolicy.Spec{Allow: []string{"://"}},
			Join: &sandbox.NetJoin{Network: "own"}}, sandbox.ErrInvalid},
	} {
		c.req.Tag = "a"
		if _, err := e.Fork(t.Context(), c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.Fault("identity-clone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Join: &sandbox.NetJoin{Network: "own", Alias: "db"}})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("a child that fails: %+v, %v", r, err)
	}
	if got, _ := nets.Get("", "own"); len(got.Members) != 0 {
		t.Errorf("after failed forks the network has %+v", got.Members)
	}
	joined(h, e, "a", "own", "db")
	plain := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0]
	if b := n.Of(plain.ID); plain.Network.Member != nil || len(b) != 1 || b[0].Member != nil {
		t.Errorf("a fork without a request is bound as %+v", b)
	}
	if err := nets.Remove("", "own"); err == nil || !strings.Contains(err.Error(), "own") {
		t.Errorf("a network with a member is removed: %v", err)
	}
}

func TestAMemberThatIsPausedRolledBackAndBranched(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Disky(e, 0)
	if _, err := e.TenantNetworks().Create("", "shop"); err != nil {
		t.Fatal(err)
	}
	db := joined(h, e, "d", "shop", "db")
	member := *db.Network.Member
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: db.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "b", N: 1})
	if err != nil || r.Children[0].Err != nil {
		t.Fatalf("fork of the branch: %+v, %v", r, err)
	}
	if child := r.Children[0].Info; child.Network.Member != nil || len(n.Of(child.ID)) != 0 {
		t.Errorf("a child of a branch has %+v", child.Network)
	}
	if _, err := e.Rollback(t.Context(), db.ID, "b"); err != nil {
		t.Fatal(err)
	}
	wantMember(t, n, db.ID, member)
	if _, err := e.Pause(t.Context(), db.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "release of the paused VM", func() bool { return len(n.Of(db.ID)) == 0 })
	if got, _ := e.TenantNetworks().Get("", "shop"); len(got.Members) != 1 {
		t.Errorf("a paused member has left: %+v", got)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if got, _ := e.TenantNetworks().Get("", "shop"); len(got.Members) != 1 {
		t.Errorf("a paused member has left with the daemon: %+v", got)
	}
	if _, err := e.Resume(t.Context(), db.ID); err != nil {
		t.Fatal(err)
	}
	wantMember(t, n, db.ID, member)
}
