package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// wantHandover checks whether forkd-net may pass sockets to a sandbox's VM.
func wantHandover(t *testing.T, n *fakeNet, sb sandbox.Info, want bool) {
	t.Helper()
	if b := n.of(sb.ID); len(b) != 1 || b[0].Handover != want || !connected(b[0]) {
		t.Errorf("%s is bound as %+v, want handover: %v", sb.ID, b, want)
	}
}

func handoverHost(t *testing.T) (*host, *fakeNet) {
	t.Helper()
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	return netHost(t)
}

func TestAConfinedVMMayBeHandedSockets(t *testing.T) {
	h, n := handoverHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.forkNet(e, "a", 2, &someNet)
	later := h.forkNet(e, "a", 1, nil)[0] // its policy denies everything: it has no wire
	if _, err := e.SetNetwork(t.Context(), later.ID, sandbox.NetworkRequest{Policy: publicNet}); err != nil {
		t.Fatal(err)
	}
	for _, sb := range append(sbs, later) {
		wantHandover(t, n, sb, true)
	}
	if len(n.binds[0]) != 2 {
		t.Errorf("bound in %v, want one request for both", n.binds)
	}
	h.close(e)
	n.kill()
	h.open() // and another forkd-net: the VMs' journals record that they are confined
	for _, sb := range append(sbs, later) {
		eventually(t, "its wire to be bound anew", func() bool { return len(n.of(sb.ID)) == 1 && connected(n.of(sb.ID)[0]) })
		wantHandover(t, n, sb, true)
	}
}

// A VM that turns out to be unconfined gets no end of a wire bound for a confined one.
func TestAVMThatIsNotConfinedIsBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("unconfined", 1)
	sbs := h.forkNet(e, "a", 2, &someNet)
	relayed := 0
	for _, sb := range sbs {
		b := n.of(sb.ID)
		if len(b) != 1 || !connected(b[0]) {
			t.Fatalf("%s is bound as %+v", sb.ID, b)
		}
		if !b[0].Handover {
			relayed++
		}
		h.wantWired(sb) // once: its end is of this binding
	}
	if relayed != 1 {
		t.Errorf("%d of two may be handed nothing, want the one", relayed)
	}
	h.fault("unconfined", 1)
	later := h.forkNet(e, "a", 1, nil)[0]
	if _, err := e.SetNetwork(t.Context(), later.ID, sandbox.NetworkRequest{Policy: publicNet}); err != nil {
		t.Fatal(err)
	}
	wantHandover(t, n, later, false)
}

// The same holds if forkd-net answers only after the restores: the VM gets its end when its network
// is opened.
func TestAVMThatIsNotConfinedIsLetOutWithAWireThatWasBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	seen := &counts{done: map[sandbox.Op]int{}}
	h.cfg.Observer = seen
	e := h.open()
	h.snapshot(e, "a")
	n.answers = make(chan struct{})
	h.fault("unconfined", 2)
	restored := seen.of(sandbox.OpRestore)
	ended := beginFork(t.Context(), e, publicNet)
	<-n.asked
	eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
	close(n.answers)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, sb := range e.List() {
		wantHandover(t, n, sb, false)
		if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"given", "open"}) {
			t.Errorf("its VM saw %q", got)
		}
	}
}

// The same holds for a VM that gets its end from the next forkd-net.
func TestAVMThatIsNotConfinedIsGivenAWireLaterThatHandsItNothing(t *testing.T) {
	h, n := handoverHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("unconfined", 2)
	n.mu.Lock()
	n.fails = errors.New("no more descriptors")
	n.mu.Unlock()
	sbs := h.forkNet(e, "a", 2, &publicNet)
	n.mu.Lock()
	n.fails = nil
	n.mu.Unlock()
	n.kill()
	for _, sb := range sbs {
		eventually(t, "a wire", func() bool { return slices.Equal(h.netNotes(sb.PID), []string{"open", "net"}) })
		wantHandover(t, n, sb, false)
	}
}

// A pooled shell exists, and is restored, before it is known to need a wire.
func TestAShellThatIsNotConfinedIsBoundAnew(t *testing.T) {
	h, n := handoverHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("unconfined", 2)
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a full pool", func() bool { return e.Pools()[0].Ready == 2 })
	for _, sb := range h.forkNet(e, "a", 2, &publicNet) {
		wantHandover(t, n, sb, false)
		h.wantWired(sb)
	}
}

func TestWithoutFiltersAllIsRelayed(t *testing.T) {
	for _, mode := range []seccomp.Mode{seccomp.Off, seccomp.Log, seccomp.Trap} {
		h, n := handoverHost(t)
		h.cfg.VMMSeccomp = mode
		e := h.open()
		h.snapshot(e, "a")
		sb := h.forkNet(e, "a", 1, &someNet)[0]
		wantHandover(t, n, sb, false)
		if len(n.binds) != 1 {
			t.Errorf("%s: bound %d times", mode, len(n.binds))
		}
	}
}
