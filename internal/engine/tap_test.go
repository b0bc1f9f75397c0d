package engine

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func tapHost(t *testing.T) (*host, *fakeTaps) {
	h, taps := newHost(t), newFakeTaps(t)
	h.cfg.NetTaps = taps
	return h, taps
}

func (h *host) forkTap(e *Engine, tag, tap string) sandbox.Info {
	h.t.Helper()
	r, err := e.Fork(h.t.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Tap: tap})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := r.Children[0].Err; err != nil {
		h.t.Fatal(err)
	}
	return r.Children[0].Info
}

func TestATapIsOneSandboxesUntilItEnds(t *testing.T) {
	h, taps := tapHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkTap(e, "a", "tap0")
	if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"restored", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	h.wantPolicy(e, sb.ID, sandbox.PolicyTap)
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	wantError(t, err, sandbox.ErrConflict, "tap tap0: sandbox "+sb.ID+" has it")
	h.forkTap(e, "a", "tap1")
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: publicNet}); err == nil {
		t.Error("it got a policy")
	}
	if flows, err := e.Flows(t.Context(), sb.ID); err != nil || len(flows) != 0 {
		t.Errorf("flows: %v, %v", flows, err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	h.forkTap(e, "a", "tap0") // immediately
	if taps.free("tap0") {
		t.Error("nobody has it")
	}
}

func TestWhatDoesNotGoWithATap(t *testing.T) {
	h, taps := tapHost(t)
	e := h.open()
	h.snapshot(e, "a")
	for _, tc := range []struct {
		name string
		req  sandbox.ForkRequest
		want string
	}{
		{"one that is not allowed", sandbox.ForkRequest{N: 1, Tap: "eth0"}, "tap eth0: the daemon does not allow it"},
		{"two children", sandbox.ForkRequest{N: 2, Tap: "tap0"}, "it serves one sandbox"},
		{"a policy", sandbox.ForkRequest{N: 1, Tap: "tap0", Network: &netpolicy.Spec{}}, "a tap takes no policy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.req.Tag = "a"
			_, err := e.Fork(t.Context(), tc.req)
			wantError(t, err, sandbox.ErrInvalid, tc.want)
		})
	}
	f, err := taps.Open("tap0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	wantError(t, err, sandbox.ErrConflict, "tap tap0: device or resource busy")
	f.Close()
	h.fault("identity-clone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	h.forkTap(e, "a", "tap0") // a failed child has released it
}

func TestASnapshotIsMadeOnATapWhichItsSandboxesDoNotInherit(t *testing.T) {
	h, taps := tapHost(t)
	e := h.open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Tap: "tap0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !taps.free("tap0") {
		t.Error("it was not left")
	}
	h.wantPolicy(e, h.fork(e, "a", 1)[0].ID, sandbox.PolicyNone)
	create := func(req sandbox.CreateRequest) error {
		req.Image = "tiny"
		_, err := e.CreateSnapshot(t.Context(), req, nil)
		return err
	}
	wantError(t, create(sandbox.CreateRequest{Tag: "b", Tap: "eth0"}), sandbox.ErrInvalid, "does not allow it")
	wantError(t, create(sandbox.CreateRequest{Tag: "b", Tap: "tap0", BuildNetwork: &publicNet}), sandbox.ErrInvalid, "no policy")
	if err := create(sandbox.CreateRequest{Tag: "b", Tap: "eth0", TapIfAllowed: true}); err != nil {
		t.Error(err)
	}
	sb := h.forkTap(e, "a", "tap0")
	wantError(t, create(sandbox.CreateRequest{Tag: "c", Tap: "tap0", TapIfAllowed: true}), sandbox.ErrConflict, sb.ID)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c"}); err != nil {
		t.Fatal(err)
	}
	h.wantPolicy(e, h.fork(e, "c", 1)[0].ID, sandbox.PolicyNone)
}

func TestARollbacksVMTakesTheTapOver(t *testing.T) {
	h, taps := tapHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkTap(e, "a", "tap0")
	after, err := e.Rollback(t.Context(), sb.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got := h.netNotes(after.PID); !slices.Equal(got, []string{"net", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	h.wantPolicy(e, sb.ID, sandbox.PolicyTap)
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	wantError(t, err, sandbox.ErrConflict, sb.ID)
	if taps.free("tap0") {
		t.Error("nobody has it")
	}
}

func TestTheNextDaemonKnowsWhoHasATap(t *testing.T) {
	h, taps := tapHost(t)
	e := h.open()
	h.snapshot(e, "a")
	sb := h.forkTap(e, "a", "tap0")
	h.close(e)
	if taps.free("tap0") {
		t.Error("its VM has left it")
	}
	e = h.open()
	h.wantPolicy(e, sb.ID, sandbox.PolicyTap)
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	wantError(t, err, sandbox.ErrConflict, sb.ID)
	if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"restored", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	h.forkTap(e, "a", "tap0")
}
