package network_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// netNotes returns the recorded events of a VM's network.
func netNotes(h *enginefake.Host, pid int) []string {
	b, _ := os.ReadFile(filepath.Join(h.Cfg.RunDir, "fake", fmt.Sprintf("net-%d", pid)))
	return strings.Fields(string(b))
}

// wired reports whether a VM got its wire once, before its network was opened: with its restore if
// forkd-net was quick enough, or with the opening. then lists its later events.
func wired(notes []string, then ...string) bool {
	return len(notes) > 0 && (notes[0] == "restored" || notes[0] == "given") &&
		slices.Equal(notes[1:], append([]string{"open"}, then...))
}

func wantWired(h *enginefake.Host, sb sandbox.Info) {
	h.T.Helper()
	if got := netNotes(h, sb.PID); !wired(got) {
		h.T.Errorf("its VM saw %q", got)
	}
}

func wantPolicy(h *enginefake.Host, e *engine.Engine, id string, want sandbox.PolicyName) {
	h.T.Helper()
	if n, err := e.Network(id); err != nil || n.Policy() != want {
		h.T.Errorf("policy of %s: %s (%+v, %v), want %s", id, n.Policy(), n, err, want)
	}
}

func TestChildrenGetTheirWiresBeforeTheyRunAndAreOpenedWhenTheyAreUnique(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := enginefake.ForkNet(h, e, "a", 3, &enginefake.SomeNet)
	if len(n.Binds) != 1 || len(n.Binds[0]) != 3 {
		t.Errorf("bound in %v, want one request for all three", n.Binds)
	}
	for _, sb := range sbs {
		bound := n.Of(sb.ID)
		if len(bound) != 1 || bound[0].Tag != "a" || !slices.Equal(bound[0].Spec.Allow, enginefake.SomeNet.Allow) || !enginefake.Connected(bound[0]) {
			t.Errorf("%s is bound as %+v", sb.ID, bound)
		}
		wantWired(h, sb)
		wantPolicy(h, e, sb.ID, sandbox.PolicyCustom)
	}
	if err := e.Kill(t.Context(), sbs[0].ID); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "release of a killed sandbox's VM", func() bool { return len(n.Of(sbs[0].ID)) == 0 && n.Count() == 2 })
}

func TestAChildThatIsNotUniqueIsNeverOpened(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	noted := func() []string {
		paths, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "net-*"))
		return paths
	}
	before := noted() // from the VM that recorded the snapshot's working set
	h.Fault("identity-clone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Network: &enginefake.PublicNet})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, path := range noted() {
		if b, _ := os.ReadFile(path); !slices.Contains(before, path) && strings.Contains(string(b), "open") {
			t.Errorf("its VM saw %q", b)
		}
	}
	if n.Count() != 0 {
		t.Errorf("%d VMs are bound", n.Count())
	}
}

func TestWithoutAnythingAllowedThereIsNoWire(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := enginefake.ForkNet(h, e, "a", 1, nil)[0]
	if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"open"}) || n.Count() != 0 {
		t.Errorf("its VM saw %q, %d are bound", got, n.Count())
	}
	wantPolicy(h, e, sb.ID, sandbox.PolicyNone)
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	wantPolicy(h, e, sb.ID, sandbox.PolicyPublic)
	if bound := n.Of(sb.ID); len(bound) != 1 || !enginefake.Connected(bound[0]) {
		t.Errorf("bound: %+v", bound)
	}
	if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"open", "net"}) {
		t.Errorf("its VM saw %q", got)
	}
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: enginefake.SomeNet}); err != nil {
		t.Fatal(err)
	}
	if bound := n.Of(sb.ID); len(bound) != 1 || bound[0].Spec.Default != netpolicy.Deny {
		t.Errorf("after the change: %+v", bound)
	}
}

func TestShellsOfAPoolGetTheirWiresAtTheFork(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "a full pool", func() bool { return e.Pools()[0].Ready == 2 })
	for _, sb := range enginefake.ForkNet(h, e, "a", 2, &enginefake.PublicNet) {
		if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"given", "open"}) || len(n.Of(sb.ID)) != 1 {
			t.Errorf("its VM saw %q, bound %+v", got, n.Of(sb.ID))
		}
	}
}

func TestThePolicyIsTheRequestsElseTheSnapshotsAndNeverAboveTheCeiling(t *testing.T) {
	h, _ := enginefake.NetHost(t)
	e := h.Open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Network: &enginefake.SomeNet}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantPolicy(h, e, enginefake.ForkNet(h, e, "a", 1, nil)[0].ID, sandbox.PolicyCustom)
	open := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0].ID
	wantPolicy(h, e, open, sandbox.PolicyPublic)
	branch := func(e *engine.Engine, tag string) {
		t.Helper()
		if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: open, Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	branch(e, "b")
	wantPolicy(h, e, enginefake.ForkNet(h, e, "b", 1, nil)[0].ID, sandbox.PolicyPublic)
	h.Close(e)

	h.Cfg.NetCeiling = &enginefake.SomeNet // of the next daemon: it also applies to running sandboxes
	e = h.Open()
	wantPolicy(h, e, open, sandbox.PolicyCustom)
	for _, asked := range []*netpolicy.Spec{nil, &enginefake.PublicNet} {
		sb := enginefake.ForkNet(h, e, "b", 1, asked)[0]
		if n := sb.Network; len(n.Cut) == 0 || n.Policy() == sandbox.PolicyPublic {
			t.Errorf("asked for %+v: got %+v", asked, n)
		}
	}
}

func TestARuleThatCannotBeReadIsRefusedBeforeAnythingIsMade(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	bad := &netpolicy.Spec{Allow: []string{"example.org:99999"}}
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Network: bad})
	enginefake.WantError(t, err, sandbox.ErrInvalid, `allow "example.org:99999": `)
	_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny", Network: bad}, nil)
	enginefake.WantError(t, err, sandbox.ErrInvalid, "99999")
	sb := h.Fork(e, "a", 1)[0].ID
	_, err = e.SetNetwork(t.Context(), sb, sandbox.NetworkRequest{Policy: *bad})
	enginefake.WantError(t, err, sandbox.ErrInvalid, "99999")
	wantPolicy(h, e, sb, sandbox.PolicyNone)
	if n.Count() != 0 {
		t.Errorf("%d VMs are bound", n.Count())
	}
}

func TestRollbackKeepsThePolicyAndMakesANewWire(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.SomeNet)[0]
	was := n.Of(sb.ID)[0]
	after, err := e.Rollback(t.Context(), sb.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "release of the old VM", func() bool { return len(n.Of(sb.ID)) == 1 })
	now := n.Of(sb.ID)[0]
	if now.VM == was.VM || !slices.Equal(now.Spec.Allow, enginefake.SomeNet.Allow) || !enginefake.Connected(now) || after.Network.Wire != now.VM {
		t.Errorf("bound as %+v, before as %+v; the list says %+v", now, was, after.Network)
	}
	wantWired(h, after)
}

func TestAfterForkdNetWasKilledAllVMsGetNewWires(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := enginefake.ForkNet(h, e, "a", 2, &enginefake.PublicNet)
	n.Kill()
	for _, sb := range sbs {
		enginefake.Eventually(t, "a new wire", func() bool {
			bound := n.Of(sb.ID)
			return len(bound) == 1 && enginefake.Connected(bound[0]) && wired(netNotes(h, sb.PID), "net")
		})
	}
}

func TestTheNextDaemonTakesWiresOverAndReleasesWhatIsGone(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := enginefake.ForkNet(h, e, "a", 2, &enginefake.PublicNet)
	first := n.Of(sbs[0].ID)[0].VM
	h.Close(e)
	port, err := n.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := port.Release(t.Context(), n.Of(sbs[1].ID)[0].VM); err != nil { // as if it had never been bound
		t.Fatal(err)
	}
	left, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if _, err := port.Bind(t.Context(), []sandbox.NetBinding{{VM: "gone.1", Sandbox: "gone", Wire: left}}); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	enginefake.Eventually(t, "what the daemon wants", func() bool {
		return n.Count() == 2 && len(n.Of("gone")) == 0 && len(n.Of(sbs[1].ID)) == 1
	})
	if now := n.Of(sbs[0].ID)[0].VM; now != first || len(netNotes(h, sbs[0].PID)) != 2 {
		t.Errorf("the wire that was there is %s now, and was %s", now, first)
	}
	wantPolicy(h, e, sbs[0].ID, sandbox.PolicyPublic)
	if flows, err := e.Flows(t.Context(), sbs[0].ID); err != nil || len(flows) != 1 || flows[0].Name != first {
		t.Errorf("flows: %+v, %v", flows, err)
	}
}

func TestForksGoOnWithoutForkdNet(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		h := enginefake.NewHost(t)
		e := h.Open()
		h.Snapshot(e, "a")
		sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0]
		if sb.Network.Warning == "" || sb.Network.Wire != "" {
			t.Errorf("got %+v", sb.Network)
		}
		_, err := e.Flows(t.Context(), sb.ID)
		if err != nil {
			t.Errorf("flows of a sandbox without a wire: %v", err)
		}
	})
	t.Run("not yet", func(t *testing.T) {
		h, n := enginefake.NetHost(t)
		n.Down = true
		e := h.Open()
		h.Snapshot(e, "a")
		sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0]
		n.Mu.Lock()
		n.Down = false
		n.Mu.Unlock()
		enginefake.Eventually(t, "a wire", func() bool { return len(n.Of(sb.ID)) == 1 && len(netNotes(h, sb.PID)) == 2 })
		if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"open", "net"}) {
			t.Errorf("its VM saw %q", got)
		}
	})
}

func TestSecretsStayWithTheSandboxThatGotThem(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	secret := enginefake.SomeNet
	secret.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": "Bearer x"}}}
	sb := enginefake.ForkNet(h, e, "a", 1, &secret)[0]
	shown, err := e.Network(sb.ID)
	if err != nil || shown.Effective.Headers[0].Headers["Authorization"] != "***" {
		t.Errorf("shown: %+v, %v", shown, err)
	}
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: shown.Asked}); err != nil {
		t.Fatal(err)
	}
	if got := n.Of(sb.ID)[0].Spec.Headers[0].Headers["Authorization"]; got != "Bearer x" {
		t.Errorf("what was shown, sent back, made it %q", got)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	if info, err := e.SnapshotInfo(t.Context(), "b"); err != nil || info.Network == nil || len(info.Network.Headers) != 0 {
		t.Errorf("the snapshot has %+v, %v", info.Network, err)
	}
}

func TestAGuestsForkHasWhatItsSourceHasAtThatMoment(t *testing.T) {
	n := enginefake.NewNet(t)
	t.Cleanup(n.Kill)
	g := enginefake.NewGuestBench(t, func(c *engine.Config) { c.NetConnect = n.Connect })
	secret := enginefake.PublicNet
	secret.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": "x"}}}
	for _, tc := range []struct {
		spec netpolicy.Spec
		want sandbox.PolicyName
	}{{netpolicy.Spec{}, sandbox.PolicyNone}, {enginefake.SomeNet, sandbox.PolicyCustom}, {secret, sandbox.PolicyPublic}} {
		if _, err := g.E.SetNetwork(t.Context(), g.Root.ID, sandbox.NetworkRequest{Policy: tc.spec}); err != nil {
			t.Fatal(err)
		}
		child := g.Forked(g.Root.ID, 1)[0]
		wantPolicy(g.Host, g.E, child, tc.want)
		if got, err := g.E.Network(child); err != nil || len(got.Effective.Headers) != 0 {
			t.Errorf("the child has headers: %+v, %v", got, err)
		}
	}
}

func TestTheLogEndsWithTheSandbox(t *testing.T) {
	h, _ := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0].ID
	lines := 0
	err := e.NetworkLog(t.Context(), sb, true, func([]byte) error {
		lines++
		go e.Kill(t.Context(), sb)
		return nil
	})
	if err != nil || lines != 1 {
		t.Errorf("%d lines, then %v", lines, err)
	}
	if err := e.NetworkLog(t.Context(), sb, false, nil); err == nil {
		t.Error("a sandbox that is gone has a log")
	}
}
