package op_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestWhatHappensIsTold(t *testing.T) {
	h := enginefake.NewHost(t)
	s := enginefake.Listen(h)
	e := h.Open()
	h.Snapshot(e, "p")
	s.Want(t, "p", sandbox.EventSnapshotCreated)
	if err := e.SetPool(t.Context(), "p", 1); err != nil {
		t.Fatal(err)
	}
	s.Want(t, "p", "snapshot.created pool.changed")
	sb := h.Fork(e, "p", 1)[0].ID
	s.Want(t, sb, "sandbox.created sandbox.ready")
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	s.Want(t, sb, "sandbox.created sandbox.ready sandbox.branched")
	s.Want(t, "b", sandbox.EventSnapshotCreated)
	if _, err := e.Rollback(t.Context(), sb, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.SetNetwork(t.Context(), sb, sandbox.NetworkRequest{Policy: netpolicy.Spec{Default: netpolicy.Deny}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	s.Want(t, sb, "sandbox.created sandbox.ready sandbox.branched sandbox.rolled_back sandbox.network sandbox.ended")
	if err := e.DeleteSnapshot(t.Context(), "b", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Want(t, "b", "snapshot.created snapshot.deleted")
}

func TestWhatFailsIsTold(t *testing.T) {
	h := enginefake.NewHost(t)
	s := enginefake.Listen(h)
	e := h.Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "none", Image: "nope"}, nil); err == nil {
		t.Fatal("it was created")
	}
	s.Want(t, "none", "") // it did not begin
	h.Snapshot(e, "p")
	sb := h.Fork(e, "p", 1)[0].ID
	h.Fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb, Tag: "b"}); err == nil {
		t.Fatal("it was branched")
	}
	s.Want(t, "b", sandbox.EventSnapshotFailed)
	h.Fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 1})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	h.Change(e, func(h *enginefake.Host) { h.Available = 0 })
	if _, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 5}); err == nil {
		t.Fatal("they were admitted")
	}
	s.Want(t, "p", "snapshot.created admission.refused")
	s.Mu.Lock()
	failed := slices.DeleteFunc(slices.Clone(s.All), func(e string) bool { return !strings.HasPrefix(e, "sandbox.failed") })
	s.Mu.Unlock()
	if len(failed) != 1 { // the one whose restore failed; refused children were never started
		t.Errorf("got %q", failed)
	}
}

// The end of a VM is reported with its reason, by this daemon or by the next.
func TestASandboxesEndIsTold(t *testing.T) {
	h := enginefake.NewHost(t)
	s := enginefake.Listen(h)
	e := h.Open()
	h.Snapshot(e, "p")
	all := h.Fork(e, "p", 2)
	killProcess(t, all[0].PID)
	s.Want(t, all[0].ID, "sandbox.created sandbox.ready sandbox.failed")
	h.Close(e)
	killProcess(t, all[1].PID)
	h.Open()
	s.Want(t, all[1].ID, "sandbox.created sandbox.ready sandbox.failed")
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "end of the process", processGone(pid))
}
