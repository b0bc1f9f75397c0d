package engine

import (
	"testing"

	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/seccomp"
)

// wantHandover tells whether forkd-net may hand sockets to a sandbox's VM.
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
	later := h.forkNet(e, "a", 1, nil)[0] // nothing is allowed: it has no wire
	if _, err := e.SetNetwork(t.Context(), later.ID, publicNet); err != nil {
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
	h.open() // and another forkd-net: that they are confined is in their journals
	for _, sb := range append(sbs, later) {
		eventually(t, "its wire to be bound anew", func() bool { return len(n.of(sb.ID)) == 1 && connected(n.of(sb.ID)[0]) })
		wantHandover(t, n, sb, true)
	}
}

// One that turns out not to be confined gets no end of a wire that was bound for one that is.
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
			if got := h.netNotes(sb.PID); len(got) == 0 || got[0] == "restored" {
				t.Errorf("its VM saw %q", got)
			}
		}
	}
	if relayed != 1 {
		t.Errorf("%d of two may be handed nothing, want the one", relayed)
	}
	h.fault("unconfined", 1)
	later := h.forkNet(e, "a", 1, nil)[0]
	if _, err := e.SetNetwork(t.Context(), later.ID, publicNet); err != nil {
		t.Fatal(err)
	}
	wantHandover(t, n, later, false)
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
