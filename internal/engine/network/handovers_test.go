package network_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// wantHandover checks whether forkd-net may pass sockets to a sandbox's VM.
func wantHandover(t *testing.T, n *enginefake.Net, sb sandbox.Info, want bool) {
	t.Helper()
	if b := n.Of(sb.ID); len(b) != 1 || b[0].Handover != want || !enginefake.Connected(b[0]) {
		t.Errorf("%s is bound as %+v, want handover: %v", sb.ID, b, want)
	}
}

func handoverHost(t *testing.T) (*enginefake.Host, *enginefake.Net) {
	t.Helper()
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	return enginefake.NetHost(t)
}

func TestAConfinedVMMayBeHandedSockets(t *testing.T) {
	h, n := handoverHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := enginefake.ForkNet(h, e, "a", 2, &enginefake.SomeNet)
	later := enginefake.ForkNet(h, e, "a", 1, nil)[0] // its policy denies everything: it has no wire
	if _, err := e.SetNetwork(t.Context(), later.ID, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	for _, sb := range append(sbs, later) {
		wantHandover(t, n, sb, true)
	}
	if len(n.Binds[0]) != 2 {
		t.Errorf("bound in %v, want one request for both", n.Binds)
	}
	h.Close(e)
	n.Kill()
	h.Open() // and another forkd-net: the VMs' journals record that they are confined
	for _, sb := range append(sbs, later) {
		enginefake.Eventually(t, "its wire to be bound anew", func() bool { return len(n.Of(sb.ID)) == 1 && enginefake.Connected(n.Of(sb.ID)[0]) })
		wantHandover(t, n, sb, true)
	}
}

// A VM that turns out to be unconfined gets no end of a wire bound for a confined one.
func TestAVMThatIsNotConfinedIsBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("unconfined", 1)
	sbs := enginefake.ForkNet(h, e, "a", 2, &enginefake.SomeNet)
	relayed := 0
	for _, sb := range sbs {
		b := n.Of(sb.ID)
		if len(b) != 1 || !enginefake.Connected(b[0]) {
			t.Fatalf("%s is bound as %+v", sb.ID, b)
		}
		if !b[0].Handover {
			relayed++
		}
		wantWired(h, sb) // once: its end is of this binding
	}
	if relayed != 1 {
		t.Errorf("%d of two may be handed nothing, want the one", relayed)
	}
	h.Fault("unconfined", 1)
	later := enginefake.ForkNet(h, e, "a", 1, nil)[0]
	if _, err := e.SetNetwork(t.Context(), later.ID, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err != nil {
		t.Fatal(err)
	}
	wantHandover(t, n, later, false)
}

// The same holds if forkd-net answers only after the restores: the VM gets its end when its network
// is opened.
func TestAVMThatIsNotConfinedIsLetOutWithAWireThatWasBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	seen := &counts{done: map[sandbox.Op]int{}}
	h.Cfg.Observer = seen
	e := h.Open()
	h.Snapshot(e, "a")
	n.Answers = make(chan struct{})
	h.Fault("unconfined", 2)
	restored := seen.of(sandbox.OpRestore)
	ended := beginFork(t.Context(), e, enginefake.PublicNet)
	<-n.Asked
	enginefake.Eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
	close(n.Answers)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, sb := range e.List() {
		wantHandover(t, n, sb, false)
		if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"given", "open"}) {
			t.Errorf("its VM saw %q", got)
		}
	}
}

// The same holds for a VM that gets its end from the next forkd-net.
func TestAVMThatIsNotConfinedIsGivenAWireLaterThatHandsItNothing(t *testing.T) {
	h, n := handoverHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("unconfined", 2)
	n.Mu.Lock()
	n.Fails = errors.New("no more descriptors")
	n.Mu.Unlock()
	sbs := enginefake.ForkNet(h, e, "a", 2, &enginefake.PublicNet)
	n.Mu.Lock()
	n.Fails = nil
	n.Mu.Unlock()
	n.Kill()
	for _, sb := range sbs {
		enginefake.Eventually(t, "a wire", func() bool { return slices.Equal(netNotes(h, sb.PID), []string{"open", "net"}) })
		wantHandover(t, n, sb, false)
	}
}

// A pooled shell exists, and is restored, before it is known to need a wire.
func TestAShellThatIsNotConfinedIsBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("unconfined", 2)
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "a full pool", func() bool { return e.Pools()[0].Ready == 2 })
	for _, sb := range enginefake.ForkNet(h, e, "a", 2, &enginefake.PublicNet) {
		wantHandover(t, n, sb, false)
		wantWired(h, sb)
	}
}

func TestWithoutFiltersAllIsRelayed(t *testing.T) {
	for _, mode := range []seccomp.Mode{seccomp.Off, seccomp.Log, seccomp.Trap} {
		h, n := handoverHost(t)
		h.Cfg.VMMSeccomp = mode
		e := h.Open()
		h.Snapshot(e, "a")
		sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.SomeNet)[0]
		wantHandover(t, n, sb, false)
		if len(n.Binds) != 1 {
			t.Errorf("%s: bound %d times", mode, len(n.Binds))
		}
	}
}
