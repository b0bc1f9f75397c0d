package op_test

import (
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// A daemon that ended between the renaming of a snapshot and the records of its sandboxes: the next one corrects them.
func TestARenamingOutlivesTheDaemon(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2})
	if err != nil {
		t.Fatal(err)
	}
	running, paused := r.Children[0].Info.ID, r.Children[1].Info.ID
	if _, err := e.Pause(t.Context(), paused, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	store, err := snapshot.OpenStore(h.Snapshots(), enginefake.Layers(h))
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Rename(store, "a", "b"); err != nil { // without the rest of the operation
		t.Fatal(err)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: running, Tag: "mid"}); err != nil {
		t.Errorf("a branch before the sandbox has its new tag: %v", err)
	}
	h.Close(e)
	e = h.Open()
	for _, id := range []string{running, paused} {
		if got := enginefake.MustGet(t, e, id); got.SnapshotTag != "b" {
			t.Errorf("%s (%s) comes from %q", id, got.Status, got.SnapshotTag)
		}
	}
	if s, err := e.SnapshotInfo(t.Context(), "mid"); err != nil || s.ParentTag != "b" {
		t.Errorf("the branch has the parent %q, %v", s.ParentTag, err)
	}
	if _, err := e.Resume(t.Context(), paused); err != nil {
		t.Error(err)
	}
	h.Close(e)
	e = h.Open()
	if got := enginefake.MustGet(t, e, paused); got.SnapshotTag != "b" || got.Status != sandbox.StatusRunning {
		t.Errorf("after the next daemon: %s comes from %q", got.Status, got.SnapshotTag)
	}
}
