package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

var (
	publicNet = netpolicy.Spec{Default: netpolicy.Public}
	someNet   = netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"example.org:443"}}
)

// netHost returns a host with a forkd-net for its engines.
func netHost(t *testing.T) (*host, *fakeNet) {
	h, n := newHost(t), newFakeNet(t)
	h.cfg.NetConnect = n.connect
	t.Cleanup(n.kill)
	return h, n
}

// netNotes returns the recorded events of a VM's network.
func (h *host) netNotes(pid int) []string {
	b, _ := os.ReadFile(filepath.Join(h.cfg.RunDir, "fake", fmt.Sprintf("net-%d", pid)))
	return strings.Fields(string(b))
}

// wired reports whether a VM got its wire once, before its network was opened: with its restore if
// forkd-net was quick enough, or with the opening. then lists its later events.
func wired(notes []string, then ...string) bool {
	return len(notes) > 0 && (notes[0] == "restored" || notes[0] == "given") &&
		slices.Equal(notes[1:], append([]string{"open"}, then...))
}

func (h *host) wantWired(sb sandbox.Info) {
	h.t.Helper()
	if got := h.netNotes(sb.PID); !wired(got) {
		h.t.Errorf("its VM saw %q", got)
	}
}

func (h *host) forkNet(e *Engine, tag string, n int, spec *netpolicy.Spec) []sandbox.Info {
	h.t.Helper()
	r, err := e.Fork(h.t.Context(), sandbox.ForkRequest{Tag: tag, N: n, Network: spec})
	if err != nil {
		h.t.Fatal(err)
	}
	var out []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.t.Fatal(c.Err)
		}
		out = append(out, c.Info)
	}
	return out
}

func (h *host) wantPolicy(e *Engine, id string, want sandbox.PolicyName) {
	h.t.Helper()
	if n, err := e.Network(id); err != nil || n.Policy() != want {
		h.t.Errorf("policy of %s: %s (%+v, %v), want %s", id, n.Policy(), n, err, want)
	}
}

func TestChildrenGetTheirWiresBeforeTheyRunAndAreOpenedWhenTheyAreUnique(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.forkNet(e, "a", 3, &someNet)
	if len(n.binds) != 1 || len(n.binds[0]) != 3 {
		t.Errorf("bound in %v, want one request for all three", n.binds)
	}
	for _, sb := range sbs {
		bound := n.of(sb.ID)
		if len(bound) != 1 || bound[0].Tag != "a" || !slices.Equal(bound[0].Spec.Allow, someNet.Allow) || !connected(bound[0]) {
			t.Errorf("%s is bound as %+v", sb.ID, bound)
		}
		h.wantWired(sb)
		h.wantPolicy(e, sb.ID, sandbox.PolicyCustom)
	}
	if err := e.Kill(t.Context(), sbs[0].ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release of a killed sandbox's VM", func() bool { return len(n.of(sbs[0].ID)) == 0 && n.count() == 2 })
}

func TestAChildThatIsNotUniqueIsNeverOpened(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	noted := func() []string {
		paths, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "fake", "net-*"))
		return paths
	}
	before := noted() // from the VM that recorded the snapshot's working set
	h.fault("identity-clone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Network: &publicNet})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, path := range noted() {
		if b, _ := os.ReadFile(path); !slices.Contains(before, path) && strings.Contains(string(b), "open") {
			t.Errorf("its VM saw %q", b)
		}
	}
	if n.count() != 0 {
		t.Errorf("%d VMs are bound", n.count())
	}
}

func TestWithoutAnythingAllowedThereIsNoWire(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkNet(e, "a", 1, nil)[0]
	if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"open"}) || n.count() != 0 {
		t.Errorf("its VM saw %q, %d are bound", got, n.count())
	}
	h.wantPolicy(e, sb.ID, sandbox.PolicyNone)
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: publicNet}); err != nil {
		t.Fatal(err)
	}
	h.wantPolicy(e, sb.ID, sandbox.PolicyPublic)
	if bound := n.of(sb.ID); len(bound) != 1 || !connected(bound[0]) {
		t.Errorf("bound: %+v", bound)
	}
	if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"open", "net"}) {
		t.Errorf("its VM saw %q", got)
	}
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: someNet}); err != nil {
		t.Fatal(err)
	}
	if bound := n.of(sb.ID); len(bound) != 1 || bound[0].Spec.Default != netpolicy.Deny {
		t.Errorf("after the change: %+v", bound)
	}
}

func TestShellsOfAPoolGetTheirWiresAtTheFork(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a full pool", func() bool { return e.Pools()[0].Ready == 2 })
	for _, sb := range h.forkNet(e, "a", 2, &publicNet) {
		if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"given", "open"}) || len(n.of(sb.ID)) != 1 {
			t.Errorf("its VM saw %q, bound %+v", got, n.of(sb.ID))
		}
	}
}

func TestThePolicyIsTheRequestsElseTheSnapshotsAndNeverAboveTheCeiling(t *testing.T) {
	h, _ := netHost(t)
	e := h.open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Network: &someNet}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.wantPolicy(e, h.forkNet(e, "a", 1, nil)[0].ID, sandbox.PolicyCustom)
	open := h.forkNet(e, "a", 1, &publicNet)[0].ID
	h.wantPolicy(e, open, sandbox.PolicyPublic)
	branch := func(e *Engine, tag string) {
		t.Helper()
		if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: open, Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	branch(e, "b")
	h.wantPolicy(e, h.forkNet(e, "b", 1, nil)[0].ID, sandbox.PolicyPublic)
	h.close(e)

	h.cfg.NetCeiling = &someNet // of the next daemon: it also applies to running sandboxes
	e = h.open()
	h.wantPolicy(e, open, sandbox.PolicyCustom)
	for _, asked := range []*netpolicy.Spec{nil, &publicNet} {
		sb := h.forkNet(e, "b", 1, asked)[0]
		if n := sb.Network; len(n.Cut) == 0 || n.Policy() == sandbox.PolicyPublic {
			t.Errorf("asked for %+v: got %+v", asked, n)
		}
	}
}

func TestARuleThatCannotBeReadIsRefusedBeforeAnythingIsMade(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	bad := &netpolicy.Spec{Allow: []string{"example.org:99999"}}
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Network: bad})
	wantError(t, err, sandbox.ErrInvalid, `allow "example.org:99999": `)
	_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny", Network: bad}, nil)
	wantError(t, err, sandbox.ErrInvalid, "99999")
	sb := h.fork(e, "a", 1)[0].ID
	_, err = e.SetNetwork(t.Context(), sb, sandbox.NetworkRequest{Policy: *bad})
	wantError(t, err, sandbox.ErrInvalid, "99999")
	h.wantPolicy(e, sb, sandbox.PolicyNone)
	if n.count() != 0 {
		t.Errorf("%d VMs are bound", n.count())
	}
}

func TestRollbackKeepsThePolicyAndMakesANewWire(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkNet(e, "a", 1, &someNet)[0]
	was := n.of(sb.ID)[0]
	after, err := e.Rollback(t.Context(), sb.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "release of the old VM", func() bool { return len(n.of(sb.ID)) == 1 })
	now := n.of(sb.ID)[0]
	if now.VM == was.VM || !slices.Equal(now.Spec.Allow, someNet.Allow) || !connected(now) || after.Network.Wire != now.VM {
		t.Errorf("bound as %+v, before as %+v; the list says %+v", now, was, after.Network)
	}
	h.wantWired(after)
}

func TestAfterForkdNetWasKilledAllVMsGetNewWires(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.forkNet(e, "a", 2, &publicNet)
	n.kill()
	for _, sb := range sbs {
		eventually(t, "a new wire", func() bool {
			bound := n.of(sb.ID)
			return len(bound) == 1 && connected(bound[0]) && wired(h.netNotes(sb.PID), "net")
		})
	}
}

func TestTheNextDaemonTakesWiresOverAndReleasesWhatIsGone(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.forkNet(e, "a", 2, &publicNet)
	first := n.of(sbs[0].ID)[0].VM
	h.close(e)
	port, err := n.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := port.Release(t.Context(), n.of(sbs[1].ID)[0].VM); err != nil { // as if it had never been bound
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
	e = h.open()
	eventually(t, "what the daemon wants", func() bool {
		return n.count() == 2 && len(n.of("gone")) == 0 && len(n.of(sbs[1].ID)) == 1
	})
	if now := n.of(sbs[0].ID)[0].VM; now != first || len(h.netNotes(sbs[0].PID)) != 2 {
		t.Errorf("the wire that was there is %s now, and was %s", now, first)
	}
	h.wantPolicy(e, sbs[0].ID, sandbox.PolicyPublic)
	if flows, err := e.Flows(t.Context(), sbs[0].ID); err != nil || len(flows) != 1 || flows[0].Name != first {
		t.Errorf("flows: %+v, %v", flows, err)
	}
}

func TestForksGoOnWithoutForkdNet(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		h := newHost(t)
		e := h.open()
		h.snapshot(e, "a")
		sb := h.forkNet(e, "a", 1, &publicNet)[0]
		if sb.Network.Warning == "" || sb.Network.Wire != "" {
			t.Errorf("got %+v", sb.Network)
		}
		_, err := e.Flows(t.Context(), sb.ID)
		if err != nil {
			t.Errorf("flows of a sandbox without a wire: %v", err)
		}
	})
	t.Run("not yet", func(t *testing.T) {
		h, n := netHost(t)
		n.down = true
		e := h.open()
		h.snapshot(e, "a")
		sb := h.forkNet(e, "a", 1, &publicNet)[0]
		n.mu.Lock()
		n.down = false
		n.mu.Unlock()
		eventually(t, "a wire", func() bool { return len(n.of(sb.ID)) == 1 && len(h.netNotes(sb.PID)) == 2 })
		if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"open", "net"}) {
			t.Errorf("its VM saw %q", got)
		}
	})
}

func TestSecretsStayWithTheSandboxThatGotThem(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	secret := someNet
	secret.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": "Bearer x"}}}
	sb := h.forkNet(e, "a", 1, &secret)[0]
	shown, err := e.Network(sb.ID)
	if err != nil || shown.Effective.Headers[0].Headers["Authorization"] != "***" {
		t.Errorf("shown: %+v, %v", shown, err)
	}
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: shown.Asked}); err != nil {
		t.Fatal(err)
	}
	if got := n.of(sb.ID)[0].Spec.Headers[0].Headers["Authorization"]; got != "Bearer x" {
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
	n := newFakeNet(t)
	t.Cleanup(n.kill)
	g := newGuestBench(t, func(c *Config) { c.NetConnect = n.connect })
	secret := publicNet
	secret.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": "x"}}}
	for _, tc := range []struct {
		spec netpolicy.Spec
		want sandbox.PolicyName
	}{{netpolicy.Spec{}, sandbox.PolicyNone}, {someNet, sandbox.PolicyCustom}, {secret, sandbox.PolicyPublic}} {
		if _, err := g.e.SetNetwork(t.Context(), g.root.ID, sandbox.NetworkRequest{Policy: tc.spec}); err != nil {
			t.Fatal(err)
		}
		child := g.forked(g.root.ID, 1)[0]
		g.wantPolicy(g.e, child, tc.want)
		if got, err := g.e.Network(child); err != nil || len(got.Effective.Headers) != 0 {
			t.Errorf("the child has headers: %+v, %v", got, err)
		}
	}
}

func TestTheLogEndsWithTheSandbox(t *testing.T) {
	h, _ := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkNet(e, "a", 1, &publicNet)[0].ID
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
