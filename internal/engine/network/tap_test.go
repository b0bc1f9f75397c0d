package network_test

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func tapHost(t *testing.T) (*enginefake.Host, *enginefake.Taps) {
	h, taps := enginefake.NewHost(t), enginefake.NewTaps(t)
	h.Cfg.NetTaps = taps
	return h, taps
}

func forkTap(h *enginefake.Host, e *engine.Engine, tag, tap string) sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Tap: tap})
	if err != nil {
		h.T.Fatal(err)
	}
	if err := r.Children[0].Err; err != nil {
		h.T.Fatal(err)
	}
	return r.Children[0].Info
}

func TestATapIsOneSandboxesUntilItEnds(t *testing.T) {
	h, taps := tapHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := forkTap(h, e, "a", "tap0")
	if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"restored", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	wantPolicy(h, e, sb.ID, sandbox.PolicyTap)
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	enginefake.WantError(t, err, sandbox.ErrConflict, "tap tap0: sandbox "+sb.ID+" has it")
	forkTap(h, e, "a", "tap1")
	if _, err := e.SetNetwork(t.Context(), sb.ID, sandbox.NetworkRequest{Policy: enginefake.PublicNet}); err == nil {
		t.Error("it got a policy")
	}
	if flows, err := e.Flows(t.Context(), sb.ID); err != nil || len(flows) != 0 {
		t.Errorf("flows: %v, %v", flows, err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	forkTap(h, e, "a", "tap0") // immediately
	if taps.Free("tap0") {
		t.Error("nobody has it")
	}
}

func TestWhatDoesNotGoWithATap(t *testing.T) {
	h, taps := tapHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
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
			enginefake.WantError(t, err, sandbox.ErrInvalid, tc.want)
		})
	}
	f, err := taps.Open("tap0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	enginefake.WantError(t, err, sandbox.ErrConflict, "tap tap0: device or resource busy")
	f.Close()
	h.Fault("identity-clone", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	forkTap(h, e, "a", "tap0") // a failed child has released it
}

func TestASnapshotIsMadeOnATapWhichItsSandboxesDoNotInherit(t *testing.T) {
	h, taps := tapHost(t)
	e := h.Open()
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Tap: "tap0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !taps.Free("tap0") {
		t.Error("it was not left")
	}
	wantPolicy(h, e, h.Fork(e, "a", 1)[0].ID, sandbox.PolicyNone)
	create := func(req sandbox.CreateRequest) error {
		req.Image = "tiny"
		_, err := e.CreateSnapshot(t.Context(), req, nil)
		return err
	}
	enginefake.WantError(t, create(sandbox.CreateRequest{Tag: "b", Tap: "eth0"}), sandbox.ErrInvalid, "does not allow it")
	enginefake.WantError(t, create(sandbox.CreateRequest{Tag: "b", Tap: "tap0", BuildNetwork: &enginefake.PublicNet}), sandbox.ErrInvalid, "no policy")
	if err := create(sandbox.CreateRequest{Tag: "b", Tap: "eth0", TapIfAllowed: true}); err != nil {
		t.Error(err)
	}
	sb := forkTap(h, e, "a", "tap0")
	enginefake.WantError(t, create(sandbox.CreateRequest{Tag: "c", Tap: "tap0", TapIfAllowed: true}), sandbox.ErrConflict, sb.ID)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c"}); err != nil {
		t.Fatal(err)
	}
	wantPolicy(h, e, h.Fork(e, "c", 1)[0].ID, sandbox.PolicyNone)
}

func TestARollbacksVMTakesTheTapOver(t *testing.T) {
	h, taps := tapHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := forkTap(h, e, "a", "tap0")
	after, err := e.Rollback(t.Context(), sb.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got := netNotes(h, after.PID); !slices.Equal(got, []string{"net", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	wantPolicy(h, e, sb.ID, sandbox.PolicyTap)
	_, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	enginefake.WantError(t, err, sandbox.ErrConflict, sb.ID)
	if taps.Free("tap0") {
		t.Error("nobody has it")
	}
}

func TestTheNextDaemonKnowsWhoHasATap(t *testing.T) {
	h, taps := tapHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := forkTap(h, e, "a", "tap0")
	h.Close(e)
	if taps.Free("tap0") {
		t.Error("its VM has left it")
	}
	e = h.Open()
	wantPolicy(h, e, sb.ID, sandbox.PolicyTap)
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Tap: "tap0"})
	enginefake.WantError(t, err, sandbox.ErrConflict, sb.ID)
	if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"restored", "open"}) {
		t.Errorf("its VM saw %q", got)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	forkTap(h, e, "a", "tap0")
}
